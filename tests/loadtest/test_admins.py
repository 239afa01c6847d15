"""How real clients that create topics log in."""

from configfile.access import Access, Certificates, Login
from loadtest.drive.admins import kafka_python_access


def test_kafka_python_gets_login_and_certificates() -> None:
    assert kafka_python_access(Access()) == {"security_protocol": "PLAINTEXT"}
    login = Login("SCRAM-SHA-512", "ci", "secret")
    found = kafka_python_access(Access(login, Certificates("ca.pem", verify_hostname=False)))
    assert found == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "ci",
        "sasl_plain_password": "secret",
        "ssl_cafile": "ca.pem",
        "ssl_check_hostname": False,
    }
