"""The command lines that start Java programs of Kafka.

In: a Java, a folder of jars, a folder for the log4j file. Out: lists of arguments that lack only the main class.
Leaves to others: running them; making the class archive (archive.py).
"""

from collections.abc import Sequence
from pathlib import Path

from localkafka.java import Java

_LOG4J = """\
rootLogger.level={level}
rootLogger.appenderRef.out.ref=OUT
appender.out.type=Console
appender.out.name=OUT
appender.out.target={target}
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %m (%c)%n%xEx
# Each prints every setting there is, at every start.
logger.settings.name=org.apache.kafka.common.config
logger.settings.level=WARN
logger.server.name=kafka.server.KafkaConfig
logger.server.level=WARN
"""


def broker_command(java: Java, jars: Path, folder: Path, flags: Sequence[str]) -> list[str]:
    """For a process that runs long: the full compiler, INFO on standard output. `flags` override the others."""
    return [*_start(java, jars), "-Xmx512m", *flags, *_classes(jars, folder, "INFO", "SYSTEM_OUT")]


def tool_command(java: Java, jars: Path, folder: Path, more: Sequence[Path] = (), classes: Path | None = None) -> list[str]:
    """For a process that ends soon: only the quick compiler, warnings on standard error. `more`: further folders of jars;
    `classes`: a folder of classes."""
    flags = ["-Xmx256m", "-XX:TieredStopAtLevel=1"]
    return [*_start(java, jars), *flags, *_classes(jars, folder, "WARN", "SYSTEM_ERR", more, classes)]


def archive_path(jars: Path, java: Java) -> Path:
    """Where the archive of loaded classes is, if there is one. It fits only these jars and this release of Java."""
    return jars / f"classes-{java.release}.jsa"


def _start(java: Java, jars: Path) -> list[str]:
    archive = archive_path(jars, java)
    shared = [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []
    # The JVM's own warnings, of an archive that does not fit for one, would go to standard output, among what a tool prints.
    return [str(java.path), "-XX:+UseSerialGC", "-Xshare:auto", *shared, "-Xlog:disable", "-Xlog:all=error:stderr"]


def _classes(
    jars: Path, folder: Path, level: str, target: str, more: Sequence[Path] = (), classes: Path | None = None
) -> list[str]:
    log4j = folder / f"log4j2-{level.lower()}.properties"
    log4j.write_text(_LOG4J.format(level=level, target=target))
    path = ":".join([*(f"{each}/*" for each in (jars, *more)), *([str(classes)] if classes else [])])
    return [f"-Dlog4j2.configurationFile={log4j}", "-Djava.awt.headless=true", "-cp", path]
