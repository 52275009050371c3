// SPDX-License-Identifier: Apache-2.0

// Package birth tells a directory from all others that there are and were on a host.
package birth
