"""What `helm test` runs, in a pod beside the proxies. In: listeners as NAME=SERVICE:PORT,HOST,plain|tls, where HOST is what clients
are told. Asks each for the brokers, as a client does, and then each broker, at the port or name that the answer has; all of it by
way of the Service, as the names of the outside may not be known here. Exit code 1 and a line for each thing that is not right.

Standard library only, and two requests: ApiVersions v0 (key 18), Metadata v1 (key 3) without topics."""

import socket
import ssl
import struct
import sys

LIMIT = 10.0
"""Seconds for one answer."""


def ask(server, sni, tls, key, version, body):
    """The body of the answer; OSError when there is none."""
    with socket.create_connection(server, LIMIT) as plain:
        plain.settimeout(LIMIT)
        if tls:
            # Whether clients trust the certificate is not for this pod to say: it has none of their authorities.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            connection = context.wrap_socket(plain, server_hostname=sni)
        else:
            connection = plain
        frame = struct.pack(">hhih", key, version, 1, 9) + b"helm-test" + body
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", read(connection, 4))
        return read(connection, size)[4:]


def read(connection, size):
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("the connection was closed before the answer was whole")
        data += more
    return data


def brokers_of(answer):
    """(id, host, port) of all brokers in a Metadata v1 answer."""
    (count,) = struct.unpack_from(">i", answer)
    at, found = 4, []
    for _ in range(count):
        broker, length = struct.unpack_from(">ih", answer, at)
        host = answer[at + 6 : at + 6 + length].decode()
        (port,) = struct.unpack_from(">i", answer, at + 6 + length)
        (rack,) = struct.unpack_from(">h", answer, at + 10 + length)
        at += 12 + length + max(rack, 0)
        found.append((broker, host, port))
    return found


def check(name, service, port, told, tls):
    """What is wrong with a listener, a line each."""
    try:
        ask((service, port), told, tls, 18, 0, b"")
    except OSError as error:
        return [f"{name}: no answer from {service}:{port}: {error}"]
    try:
        brokers = brokers_of(ask((service, port), told, tls, 3, 1, struct.pack(">i", 0)))
    except OSError:
        print(f"{name}: answers; it does not tell its brokers before a login, so they are not tried")
        return []
    wrong = [] if brokers else [f"{name}: knows no broker"]
    for broker, host, broker_port in brokers:
        # By ports every broker is at the host that was set; by names each has its own, at the Service's one port.
        names = host != told
        try:
            ask((service, port if names else broker_port), host, tls, 18, 0, b"")
        except OSError as error:
            wrong.append(
                f"{name}: clients are told that broker {broker} is at {host}:{broker_port}, and it does not answer there: {error}"
            )
        else:
            print(f"{name}: broker {broker} answers; clients are told {host}:{broker_port}")
    return wrong


def main(arguments):
    wrong = []
    for argument in arguments:
        name, _, rest = argument.partition("=")
        server, told, kind = rest.split(",")
        service, _, port = server.rpartition(":")
        wrong += check(name, service, int(port), told, kind == "tls")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


sys.exit(main(sys.argv[1:]))
