CREATE TABLE keys (
  id      TEXT PRIMARY KEY,
  hash    BLOB NOT NULL UNIQUE,
  name    TEXT NOT NULL,
  policy  TEXT NOT NULL,
  profile TEXT NOT NULL,
  created INTEGER NOT NULL,
  revoked INTEGER
) STRICT;

CREATE TABLE sandboxes (
  id    TEXT PRIMARY KEY,
  owner TEXT NOT NULL,
  state TEXT NOT NULL,
  ended INTEGER,
  body  BLOB NOT NULL
) STRICT;

CREATE INDEX sandboxes_ended ON sandboxes (ended) WHERE ended IS NOT NULL;

CREATE TABLE secrets (
  name  TEXT PRIMARY KEY,
  value BLOB NOT NULL
) STRICT;
