import re
import csv
import sys
import argparse
from collections import Counter, defaultdict
from urllib.parse import urljoin
import requests
from bs4 import BeautifulSoup

def fetch(url, session=requests.Session()):
    r = session.get(url, timeout=10)
    r.raise_for_status()
    return BeautifulSoup(r.text, "html.parser")

def main(argv=None):
    p = argparse.ArgumentParser()
    p.add_argument("url")
    args = p.parse_args(argv)
    soup = fetch(args.url)
    words = Counter(re.compile(r"\w+").findall(soup.get_text().lower()))
    links = defaultdict(list)
    for a in soup.select("a[href]"):
        links[a.text.strip()].append(urljoin(args.url, a["href"]))
    w = csv.writer(sys.stdout)
    w.writerows(words.most_common(10))
    return 0

if __name__ == "__main__":
    sys.exit(main())
