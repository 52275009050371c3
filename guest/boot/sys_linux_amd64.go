// SPDX-License-Identifier: Apache-2.0

package boot

const sysFinitModule = 313
