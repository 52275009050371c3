CREATE TABLE snapshots (
  id      TEXT PRIMARY KEY,
  owner   TEXT NOT NULL,
  created INTEGER NOT NULL,
  body    BLOB NOT NULL
) STRICT;

CREATE INDEX snapshots_owner ON snapshots (owner, created);
