// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/caisson-run/caisson/sandbox/faketest"
)

func TestMain(m *testing.M) {
	faketest.Init()
	goleak.VerifyTestMain(m)
}
