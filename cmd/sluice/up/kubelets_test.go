// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"sluice.dev/test/cluster/fakekubelet"
)

// The most that --dir may have is what the fake kubelet takes, and not a byte more.
func TestMaxDirIsWhatTheKubeletTakes(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "sluice-up-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	list := samples[schedulerKube].nodes(12)
	for over, want := range map[int]bool{0: true, 1: false} {
		dir := filepath.Join(base, strings.Repeat("d", maxDir(list)-len(base)-1+over))
		ended, cancel := context.WithCancel(t.Context())
		cancel() // the paths are looked at before anything begins
		err := fakekubelet.Run(ended, fakekubelet.Config{Dir: dir, Nodes: list, API: &rest.Config{Host: "127.0.0.1:1"}, Log: slog.New(slog.DiscardHandler)})
		if (err == nil) != want {
			t.Errorf("a folder of %d bytes: %v, want it taken: %v", len(dir), err, want)
		}
	}
}
