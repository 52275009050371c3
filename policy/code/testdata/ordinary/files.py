import os
import shutil
import tempfile
from pathlib import Path
import subprocess
import hashlib
import logging
logging.basicConfig(level=logging.INFO)
log = logging.getLogger(__name__)
with tempfile.TemporaryDirectory() as d:
    p = Path(d) / "a.txt"
    p.write_text("hello")
    log.info("%s %d", p, os.path.getsize(p))
    shutil.copy(p, Path(d) / "b.txt")
    print(hashlib.sha256(p.read_bytes()).hexdigest())
    out = subprocess.run(["ls", "-l", d], capture_output=True, text=True, check=True)
    print(out.stdout, os.environ.get("HOME"), os.listdir(d))
for root, dirs, names in os.walk("."):
    for n in names:
        print(os.path.join(root, n))
