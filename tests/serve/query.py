#!/usr/bin/env python3
"""Sends one general query of IGMP version 3, as a router does that then falls silent: query.py ADDRESS"""

import socket
import struct
import sys

ALL_HOSTS = "224.0.0.1"
ROUTER_ALERT = b"\x94\x04\x00\x00"
QUERY = 0x11
# Tenths of a second that machines may take to answer.
ANSWER_TENTHS = 5
QUERIER_ROBUSTNESS, QUERIER_INTERVAL_S = 2, 125


def query():
    """Returns the message."""
    fields = [QUERY, ANSWER_TENTHS, 0, b"\0\0\0\0", QUERIER_ROBUSTNESS, QUERIER_INTERVAL_S, 0]
    message = struct.pack("!BBH4sBBH", *fields)
    words = sum(struct.unpack("!6H", message))
    fields[2] = ~((words & 0xFFFF) + (words >> 16)) & 0xFFFF
    return struct.pack("!BBH4sBBH", *fields)


def main():
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_IGMP) as router:
        router.bind((sys.argv[1], 0))
        router.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, ROUTER_ALERT)
        router.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(sys.argv[1]))
        router.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
        router.sendto(query(), (ALL_HOSTS, 0))


if __name__ == "__main__":
    main()
