#!/usr/bin/env python3
# -*- coding: utf-8 -*-
"""Formats things."""
from __future__ import annotations
import base64, zlib, struct, string, textwrap, pprint, copy, threading, queue
from xml.etree import ElementTree as ET
from decimal import Decimal
template = string.Template("$a and ${b}")
print(template.substitute(a=1, b="{x!r:>10}".format(x="é")), "%-10s|%5.2f" % ("a", 1.5), f"{Decimal('1.10'):.1f}")
print(base64.b64decode(base64.b64encode(b"x")).decode("ascii"), zlib.crc32(b"x"), struct.unpack("<I", b"abcd"))
pprint.pprint(copy.deepcopy({"a": [1, (2, 3)]})); print(textwrap.dedent("  x"))
q = queue.Queue()
def work():
    while True:
        item = q.get()
        if item is None:
            break
        print(item)
t = threading.Thread(target=work, daemon=True); t.start(); q.put(1); q.put(None); t.join()
print(ET.fromstring("<a b='1'/>").get("b"), "".join(reversed("abc")), __name__, __doc__, __file__)
