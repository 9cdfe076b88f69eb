// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"sluice.dev/test/cluster"
	"sluice.dev/test/cluster/process"
)

// dirCheckInterval is how soon a run sees that its folder was taken from it.
const dirCheckInterval = time.Second

// watchComponents keeps the report right and says what crashes and comes back, until ctx
// ends. It returns an error when the folder is no longer this run's: nobody
// could find it any more to stop it.
func watchComponents(ctx context.Context, c *cluster.Cluster, report Report, output io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes := c.Processes().Watch(ctx)
	tick := time.NewTicker(dirCheckInterval)
	defer tick.Stop()
	before := map[string]process.Status{}
	for {
		var list []process.Status
		select {
		case <-tick.C:
		case list = <-changes:
		}
		if ctx.Err() != nil {
			return nil
		}
		if !report.ownsDir() {
			who := currentCaller()
			return fmt.Errorf("the folder %s was removed while the cluster ran, so it is stopped; next time use `%s down --dir %s`",
				who.shellPath(report.Dir), who.program, who.shellPath(report.Dir))
		}
		if list == nil {
			continue
		}
		for _, now := range list {
			if text := describeTransition(before[now.Name], now); text != "" {
				fmt.Fprintf(output, "%s %s\n", time.Now().Format(time.TimeOnly), text)
			}
			before[now.Name] = now
		}
		if err := report.save(list); err != nil {
			fmt.Fprintln(output, err)
		}
	}
}

// ownsDir reports whether the folder is still there, and still this run's:
// another may have been made in its place.
func (r Report) ownsDir() bool {
	if !cluster.Exists(r.Dir) {
		return false
	}
	raw, err := os.ReadFile(filepath.Join(r.Dir, reportFile))
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	var there Report
	// One that cannot be read is written anew at the next change.
	return json.Unmarshal(raw, &there) != nil || there.PID == r.PID
}

// removeEmptyDirs removes dir where it has nothing but empty folders: programs that were
// still running may have made some while somebody removed it.
func removeEmptyDirs(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // gone, or no folder of ours
	}
	for _, entry := range entries {
		if entry.IsDir() {
			removeEmptyDirs(filepath.Join(dir, entry.Name()))
		}
	}
	_ = os.Remove(dir) // it stays where it is not empty
}

// describeTransition is what to say of a component that was and now is; empty for nothing.
func describeTransition(was, now process.Status) string {
	switch {
	case now.State == process.BackOff && was.State != process.BackOff:
		return fmt.Sprintf("%s ended (%s); it is started again; its log: %s", now.Name, now.LastExit, shellQuote(now.LogPath))
	case now.State == process.Running && was.Restarts < now.Restarts && was.Name != "":
		return fmt.Sprintf("%s runs again, process %d, restart %d", now.Name, now.PID, now.Restarts)
	default:
		return ""
	}
}
