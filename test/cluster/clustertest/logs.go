// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"sluice.dev/test/cluster"
)

const (
	// shownLines of each component's log are enough to see what it was busy with.
	shownLines = 15
	readAtMost = 64 << 10
)

// showLogsOnFailure makes the test, should it fail, show what the components of
// the cluster logged in the meantime.
func showLogsOnFailure(t testing.TB, c *cluster.Cluster) {
	before := map[string]int64{}
	for _, component := range c.Processes().List() {
		if info, err := os.Stat(component.LogPath); err == nil {
			before[component.LogPath] = info.Size()
		}
	}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, component := range c.Processes().List() {
			state := string(component.State)
			if component.LastExit != "" {
				state += ", last ended with " + component.LastExit
			}
			tail, err := tailSince(component.LogPath, before[component.LogPath])
			if err != nil {
				tail = err.Error()
			}
			t.Logf("%s (%s) logged during this test:\n%s", component.Name, state, tail)
		}
	})
}

// tailSince returns the last lines of what a log has grown by.
func tailSince(path string, offset int64) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	if info.Size() < offset { // cut or begun anew meanwhile
		offset = 0
	}
	content, err := io.ReadAll(io.NewSectionReader(file, max(offset, info.Size()-readAtMost), readAtMost))
	if err != nil {
		return "", err
	}
	lines := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	if left := len(lines) - shownLines; left > 0 {
		lines = append([]string{fmt.Sprintf("... %d lines before", left)}, lines[left:]...)
	}
	return "    " + strings.Join(lines, "\n    "), nil
}
