-- SPDX-License-Identifier: Apache-2.0
-- Nothing is appended to audit.tail any more. A caisson that still does refuses this
-- layout.
DROP TABLE tail;
