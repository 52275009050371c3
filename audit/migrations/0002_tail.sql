-- SPDX-License-Identifier: Apache-2.0
-- The end of the chain may lie in audit.tail. A caisson that does not know that file
-- would append to a head that is not the last one: it finds a table that it has not made,
-- and refuses. It stays empty.
CREATE TABLE tail (
  never INTEGER PRIMARY KEY
) STRICT;
