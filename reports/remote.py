"""Logs in a file system that Spark reads and Python does not, such as S3: its errors, in words that say what to do.

In: an error of Spark's, and the `--logs` that it came from. Out: a `ReportError` of one line where its user can mend the cause,
else None. The error itself is long, and holds ids of requests that help nobody. Left to others: reading (`reports.read`),
connectors (docs/report.md, "Logs in S3").
"""

import re
from pathlib import Path

from reports.errors import ReportError
from reports.java import spark_home

_CAUSES = (
    (r"ClassNotFoundException: Class (?:\S*\.)?S3AFileSystem not found", "Spark has no connector for S3: give it {connector}"),
    (r"(?:NoClassDefFoundError|ClassNotFoundException): software[./]amazon", "the AWS SDK is missing: give Spark {connector}"),
    (r"No FileSystem for scheme \"s3n?\"", "Spark has no file system of that name: the address of S3 begins with s3a://"),
    (r"No FileSystem for scheme", "Spark has no file system of that name, or lacks its connector"),
    (r"NoSuchBucket|UnknownStoreException", "there is no such bucket"),
    (
        r"NoAuthWithAWSException|NoAwsCredentialsException|Unable to load credentials|No AWS Credentials",
        "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, "
        "or fs.s3a.aws.credentials.provider (docs/report.md)",
    ),
    (
        r"InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|ExpiredToken|AccessDenied|Status Code: 40[13]",
        "access is denied: the credentials are wrong or have expired, or may not list and read it",
    ),
    (
        r"AuthorizationHeaderMalformed|S3Exception: Bad Request|AWSRedirectException",
        "S3 takes the request for a wrong one: set spark.hadoop.fs.s3a.endpoint.region to the region of the bucket",
    ),
    (r"UnknownHostException", "the host of its endpoint is not known (spark.hadoop.fs.s3a.endpoint)"),
    (
        r"ConnectException|Connection refused|ConnectTimeoutException|SocketTimeoutException|NoRouteToHostException",
        "its server cannot be reached",
    ),
    (
        r"(?:org\.apache\.hadoop\.fs\.s3a\.\w*Exception: |IOException: (?=Error accessing s3))(?P<why>[^\n]{1,200})",
        "S3A says: {why}",
    ),
)
"""What an error's text has in it -> what that means. The first that fits counts."""


def explained(error: Exception, logs: str) -> ReportError | None:
    """The error as its user can mend it; None where it is none of these."""
    said = str(error)
    for pattern, meaning in _CAUSES:
        if found := re.search(pattern, said):
            text = meaning.format(connector=_connector(), **found.groupdict())
            return ReportError(f"the logs folder {logs} cannot be read: {text}")
    return None


def _connector() -> str:
    return f"--spark-conf spark.jars.packages=org.apache.hadoop:hadoop-aws:{hadoop_version()} (docs/report.md, Logs in S3)"


def hadoop_version() -> str:
    """The version of Hadoop in the Spark that is used; its connectors have to be of the same."""
    jars = Path(spark_home(), "jars").glob("hadoop-client-api-*.jar")
    return next((jar.stem.removeprefix("hadoop-client-api-") for jar in jars), "VERSION")
