// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"os/exec"
	"strings"
	"testing"
)

func TestBackgroundErrorIsOneLine(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	tests := map[string]struct {
		ctx    context.Context
		script string
		want   string
	}{
		"it printed why":             {t.Context(), "exit 1", "the cluster did not start; the reason is above"},
		"it was killed":              {t.Context(), "kill -9 $$", "the cluster did not start: signal: killed"},
		"it was terminated":          {t.Context(), "exit 0", errStopped.Error()},
		"we were interrupted":        {ended, "exit 1", errStopped.Error()},
		"we were interrupted, twice": {ended, "kill -9 $$", errStopped.Error()},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := backgroundError(tc.ctx, exec.CommandContext(t.Context(), "sh", "-c", tc.script).Run())
			if err == nil || err.Error() != tc.want || strings.Contains(err.Error(), "\n") {
				t.Errorf("backgroundError = %q, want %q", err, tc.want)
			}
		})
	}
}
