// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice.dev/gpuagent/agent"
)

func TestStatusWithoutAgentAndDriver(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "gpuagent.yaml")
	text := "apiVersion: config.sluice.dev/v1alpha1\nkind: GPUAgentConfig\nnodeName: dgx-01\ndriver: {library: " + dir +
		"/none.so}\nstateDir: /none\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	code := agent.StatusMain(t.Context(), []string{"--config", file}, &out, &errs, newLibrary)
	if code != 1 || !strings.Contains(errs.String(), "/none/agent.sock") || !strings.Contains(errs.String(), "install NVIDIA's driver") {
		t.Errorf("%d, %s", code, errs.String())
	}
}
