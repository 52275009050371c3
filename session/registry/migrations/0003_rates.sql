-- SPDX-License-Identifier: Apache-2.0

-- How often something was done lately. Times are nanoseconds since the boot that
-- they are of: nobody steps that clock, and all processes of a host share it.
CREATE TABLE rates (
	bucket TEXT PRIMARY KEY, -- who, what, and the rate itself
	most   INTEGER NOT NULL, -- that many
	per    INTEGER NOT NULL, -- in that time, ns
	taken  INTEGER NOT NULL, -- in all
	boot   TEXT NOT NULL,
	newest INTEGER NOT NULL
) STRICT;

-- The last "most" times of a bucket, as a ring: what was taken n-th is in the slot
-- n modulo most.
CREATE TABLE rate_times (
	bucket TEXT NOT NULL,
	slot   INTEGER NOT NULL,
	boot   TEXT NOT NULL,
	at     INTEGER NOT NULL,
	PRIMARY KEY (bucket, slot)
) STRICT, WITHOUT ROWID;
