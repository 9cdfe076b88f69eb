// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What `make build` built is copied, not built again, and a later build does not change the copy.
func TestPrebuiltProgramsAreCopied(t *testing.T) {
	bin, dir := t.TempDir(), filepath.Join(t.TempDir(), "bin")
	for _, group := range programGroups {
		for _, name := range group.names {
			if err := os.WriteFile(filepath.Join(bin, name), []byte("prebuilt"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv(binVariable, bin)
	if err := BuildPrograms(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	webhook := filepath.Join(bin, "webhook")
	if err := os.Remove(webhook); err != nil {
		t.Fatal(err)
	}
	if copied, err := os.ReadFile(filepath.Join(dir, "webhook")); err != nil || string(copied) != "prebuilt" {
		t.Errorf("the copy is %q, %v", copied, err)
	}
	if err := BuildPrograms(t.Context(), dir); err == nil || !strings.Contains(err.Error(), webhook) || !strings.Contains(err.Error(), "`make build` builds all programs") {
		t.Errorf("a missing program: %v", err)
	}
	t.Setenv(binVariable, "bin")
	if err := BuildPrograms(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "must be an absolute path") {
		t.Errorf("a relative folder: %v", err)
	}
}
