"""The report as a job of `spark-submit`: it takes the options of `kafka-quota-proxy report` and the session of its submitter.

docs/report.md and the container image name this file.
"""

from reports.cli import report

if __name__ == "__main__":
    report()
