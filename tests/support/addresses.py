"""Addresses that requests of users' choice may not reach."""

from __future__ import annotations

FORBIDDEN = [
    "http://127.0.0.1/",
    "http://127.1/",  # the same, written short
    "http://2130706433/",  # decimal
    "http://0x7f000001/",  # hexadecimal
    "http://0177.0.0.1/",  # octal
    "http://0/",
    "http://0.0.0.0/",
    "http://localhost/",
    "http://localhost./",
    "http://[::1]/",
    "http://[::]/",
    "http://[::ffff:127.0.0.1]/",  # mapped
    "http://[::ffff:7f00:1]/",
    "http://[::127.0.0.1]/",  # compatible
    "http://[64:ff9b::7f00:1]/",  # NAT64
    "http://[64:ff9b:1::a00:1]/",
    "http://[64:ff9b::a9fe:a9fe]/",  # NAT64, to the metadata
    "http://[::ffff:0:7f00:1]/",  # translated
    "http://[2002:7f00:1::]/",  # 6to4
    "http://[2002:a9fe:a9fe::1]/",
    "http://[2001:0:7f00:1::]/",  # Teredo
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://192.168.1.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://2852039166/",  # the same, decimal
    "http://0xa9.0xfe.0xa9.0xfe/",
    "http://0251.0376.0251.0376/",
    "http://[::ffff:169.254.169.254]/",
    "http://[fe80::1]/",
    "http://[fd00:ec2::254]/",  # metadata, by IPv6
    "http://[fec0::1]/",
    "http://100.100.100.200/",  # metadata of another cloud, in the carriers' range
    "http://224.0.0.1/",
    "http://[ff02::1]/",
    "http://255.255.255.255/",
    "http://192.0.2.1/",
    "http://198.18.0.1/",
    "http://192.0.0.192/",  # metadata of a cloud, in the range of protocol assignments
    "http://192.0.0.8/",
    "http://168.63.129.16/",  # the inside of a cloud, at a public-looking address
    "http://[::ffff:192.0.0.192]/",
    "http://[64:ff9b::a83f:8110]/",  # NAT64, to the same
    "http://[2002:c000:c0::]/",  # 6to4, to 192.0.0.192
    "http://192.88.99.1/",
    "http://[2001:db8::1]/",
    "http://[3fff::1]/",
    "http://[5f00::1]/",
    "http://[100::1]/",
    "http://[4000::1]/",  # never given out
    "http://[64:ff9b:1::808:808]/",  # NAT64 of somebody's own
]
