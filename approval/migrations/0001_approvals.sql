-- SPDX-License-Identifier: Apache-2.0
CREATE TABLE requests (
  id       TEXT PRIMARY KEY,
  token    BLOB NOT NULL UNIQUE,          -- SHA-256
  actor    TEXT NOT NULL,
  digest   TEXT NOT NULL,
  state    TEXT NOT NULL CHECK (state IN ('pending', 'approved', 'used', 'denied', 'expired', 'cancelled', 'void')),
  created  INTEGER NOT NULL,              -- milliseconds since 1970, all times
  expires  INTEGER NOT NULL,              -- of the question, then of the answer
  timeout  INTEGER NOT NULL,
  ended    INTEGER NOT NULL DEFAULT 0,
  approver TEXT NOT NULL DEFAULT '',
  channel  TEXT NOT NULL DEFAULT '',
  note     TEXT NOT NULL DEFAULT '',
  channels BLOB NOT NULL,                 -- JSON
  view     BLOB NOT NULL                  -- JSON
) STRICT;
CREATE INDEX requests_by_actor ON requests (actor, digest, state);
CREATE INDEX requests_by_state ON requests (state, created);
CREATE TABLE approvers (
  id      TEXT PRIMARY KEY,
  name    TEXT NOT NULL,
  hash    BLOB NOT NULL UNIQUE,           -- SHA-256 of the credential
  created INTEGER NOT NULL,
  revoked INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX approvers_by_name ON approvers (name) WHERE revoked = 0;
CREATE TABLE secrets (
  name  TEXT PRIMARY KEY,
  value BLOB NOT NULL
) STRICT;
