-- SPDX-License-Identifier: Apache-2.0
-- Every column of every table is covered by a digest, by a signature or by the
-- content it must match; Verify checks them all. One statement ends at each
-- semicolon, and comments stand between statements only: Verify compares this
-- text with what the database says it was made by.

-- The chain. body is NULL once retention dropped it; the rest stays for ever.
CREATE TABLE records (
  seq         INTEGER PRIMARY KEY,
  at          INTEGER NOT NULL,
  entry       TEXT NOT NULL,
  event       TEXT NOT NULL,
  prev        BLOB NOT NULL,
  body_digest BLOB NOT NULL,
  digest      BLOB NOT NULL,
  signature   BLOB NOT NULL,
  body        BLOB
) STRICT;

-- Finds an intent's outcome, and keeps an entry from having two.
CREATE UNIQUE INDEX records_entry ON records (entry, event);

-- Content by digest: command lines, code, the beginnings of output streams.
CREATE TABLE blobs (
  digest  BLOB PRIMARY KEY,
  content BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- The signed head: how many records there are and what the last one's link is.
CREATE TABLE head (
  one       INTEGER PRIMARY KEY CHECK (one = 1),
  count     INTEGER NOT NULL,
  link      BLOB NOT NULL,
  at        INTEGER NOT NULL,
  signature BLOB NOT NULL
) STRICT;
