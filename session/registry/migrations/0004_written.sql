-- SPDX-License-Identifier: Apache-2.0

-- What the calls of each key have added to the audit log of late, by the hour.
CREATE TABLE written (
	key   TEXT NOT NULL,    -- its ID
	hour  INTEGER NOT NULL, -- since 1970
	bytes INTEGER NOT NULL,
	PRIMARY KEY (key, hour)
) STRICT, WITHOUT ROWID;
