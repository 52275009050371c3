// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"os"
	"testing"

	"github.com/caisson-run/caisson/api/apitest"
	"github.com/caisson-run/caisson/sandbox/docker/enginetest"
)

// TestDocker is TestSDK, TestInterpreter and TestFrameworks on the Docker level, with an engine of
// its own.
func TestDocker(t *testing.T) {
	if os.Getenv("CAISSON_TEST_ENGINE") == "" {
		t.Skip("make test-docker-all runs it")
	}
	caisson := apitest.BuiltCaisson(t, "test-docker-all")
	engine, err := enginetest.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("DOCKER_HOST", engine.Host)
	mine, other := caisson.Key(t, "mine"), caisson.Key(t, "other")
	env := clientEnv(caisson.Serve(t, "--policy", policyFile(t, "docker")), mine, true)
	t.Run("E2B", func(t *testing.T) {
		apitest.Node(t, "testdata/sdk", append(env, "CAISSON_OTHER_KEY="+other, "CAISSON_TEST_CANARY="+canary(t)))
	})
	t.Run("interpreter", func(t *testing.T) {
		apitest.Node(t, "testdata/interpreter", append(env, "CAISSON_INTERPRETER=@e2b/code-interpreter", "CAISSON_TEST_SCIENCE=no"))
	})
	t.Run("frameworks", func(t *testing.T) { apitest.Node(t, "testdata/frameworks", env) })
}
