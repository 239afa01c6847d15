"""What the image of the report runs. In: arguments. Out: another program in the place of this one.

Spark on Kubernetes starts the pods of an application with `driver …` and `executor`, and tells the rest by variables; whatever else
is given goes to kafka-quota-proxy. Standard library only."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
TOLD = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
"""Option of an executor → the variable that has its value."""


def command(arguments: Sequence[str], env: Mapping[str, str], spark: str) -> list[str]:
    """What to run; `spark` is Spark's folder."""
    match arguments:
        case ["driver", *rest]:
            bind = f"spark.driver.bindAddress={env['SPARK_DRIVER_BIND_ADDRESS']}"
            return [f"{spark}/bin/spark-submit", "--conf", bind, "--deploy-mode", "client", *rest]
        case ["executor"]:
            memory, classes = env["SPARK_EXECUTOR_MEMORY"], (env.get("SPARK_CLASSPATH"), f"{spark}/jars/*")
            java = ["java", *java_options(env), f"-Xms{memory}", f"-Xmx{memory}", "-cp", ":".join(filter(None, classes)), BACKEND]
            return java + [part for option, name in TOLD.items() for part in (option, env[name])]
    return ["kafka-quota-proxy", *arguments]


def java_options(env: Mapping[str, str]) -> list[str]:
    """Those that Spark numbers, in their order."""
    numbered = {int(found[1]): value for name, value in env.items() if (found := re.fullmatch(r"SPARK_JAVA_OPT_(\d+)", name))}
    return [numbered[number] for number in sorted(numbered)]


def main() -> None:
    found = find_spec("pyspark")
    spark = str(Path(found.origin).parent) if found and found.origin else ""
    os.environ.setdefault("SPARK_HOME", spark)
    program = command(sys.argv[1:], os.environ, spark)
    os.execvp(program[0], program)  # noqa: S606


if __name__ == "__main__":
    main()
