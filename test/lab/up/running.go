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
	"strconv"
	"time"

	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/test/lab/cluster"
	"sluice.dev/test/lab/cluster/process"
)

// ErrNotRunning is the error for a folder whose cluster does not run.
var ErrNotRunning = errors.New("no cluster is running")

// Status returns the report of the cluster that runs in dir. It fails with
// [ErrNotRunning] if none does.
func Status(dir string) (Report, error) {
	var report Report
	pid, err := cluster.Holder(dir)
	if err != nil {
		return report, err
	}
	if pid == 0 {
		who := currentCaller()
		return report, fmt.Errorf("%w in %s; start one with `%s up --dir %[2]s`", ErrNotRunning, who.shellPath(dir), who.program)
	}
	raw, err := os.ReadFile(filepath.Join(dir, reportFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return report, fmt.Errorf("read report: %w", err)
	}
	if err == nil {
		if err := json.Unmarshal(raw, &report); err != nil {
			return report, fmt.Errorf("decode %s: %w", reportFile, err)
		}
	}
	if report.PID != pid { // no report yet, or an earlier run's
		return report, fmt.Errorf("process %d is starting or stopping the cluster in %s; try again in a moment",
			pid, currentCaller().shellPath(dir))
	}
	return report.refresh()
}

// CheckRunning reports whether a cluster runs in options.Dir. It prints the screen
// of a cluster that has these options. It fails for a cluster that differs, and for
// options that no cluster can have.
func CheckRunning(options Options) (bool, error) {
	options, err := options.validate()
	if err != nil {
		return false, err
	}
	report, err := Status(options.Dir)
	switch {
	case errors.Is(err, ErrNotRunning):
		return false, nil
	case err != nil:
		return false, err
	}
	who := currentCaller()
	if conflict, instead := options.conflictWith(report); conflict != "" {
		return true, fmt.Errorf("the cluster is already running, %s: %s; %s`%s %s --dir %s`",
			report.describe(), conflict, instead.words, who.program, instead.command, who.shellPath(report.Dir))
	}
	fmt.Fprint(options.Output, "The cluster is already running\n\n")
	return true, WriteReport(options.Output, report)
}

// suggestion is a command to use instead.
type suggestion struct{ words, command string }

// conflictWith returns the option that a running cluster does not have, and what to
// do instead. It returns an empty string if there is none.
func (o Options) conflictWith(report Report) (string, suggestion) {
	stop := suggestion{"stop it first with ", "down --keep"}
	switch {
	case !o.NodesUnset && o.Nodes != len(report.Nodes):
		return fmt.Sprintf("--nodes %d does not change it", o.Nodes), stop
	case o.Port != 0 && strconv.Itoa(o.Port) != report.apiServerPort():
		return fmt.Sprintf("--port %d does not change it", o.Port), stop
	case o.TimeScale != 0 && !report.hasTimeScale(o.TimeScale):
		scale := formatScale(o.TimeScale)
		return fmt.Sprintf("--time-scale %s does not change it", scale), suggestion{"change it with ", "time scale " + scale}
	case !o.Detach:
		return fmt.Sprintf("process %d runs it", report.PID), stop
	default:
		return "", suggestion{}
	}
}

// dirCheckInterval is the time until a run notices that its folder was removed.
const dirCheckInterval = time.Second

// watchComponents keeps the report up to date, and prints crashes and restarts,
// until ctx ends. It fails if the folder was removed or belongs to another run: then
// `sluice down` could not stop this one.
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
			return fmt.Errorf("the folder %s was removed while the cluster was running, so it stops; next time use `%s down --dir %s`",
				who.shellPath(report.Dir), who.program, who.shellPath(report.Dir))
		}
		if list == nil {
			continue
		}
		for _, current := range list {
			if text := describeTransition(before[current.Name], current); text != "" {
				fmt.Fprintf(output, "%s %s\n", time.Now().Format(time.TimeOnly), text)
			}
			before[current.Name] = current
		}
		if err := report.save(list); err != nil {
			fmt.Fprintln(output, err)
		}
	}
}

// ownsDir reports whether the folder exists and belongs to this run.
func (r Report) ownsDir() bool {
	if !cluster.Exists(r.Dir) {
		return false
	}
	raw, err := os.ReadFile(filepath.Join(r.Dir, reportFile))
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	var found Report
	// The next change replaces a damaged report.
	return json.Unmarshal(raw, &found) != nil || found.PID == r.PID
}

// describeTransition returns a line about a crash or a restart; empty for any other
// change.
func describeTransition(before, current process.Status) string {
	switch {
	case current.State == process.BackOff && before.State != process.BackOff:
		return fmt.Sprintf("%s ended (%s) and will be restarted; its log: %s", current.Name, current.LastExit,
			printer.ShellQuote(current.LogPath))
	case current.State == process.Running && before.Restarts < current.Restarts && before.Name != "":
		return fmt.Sprintf("%s was restarted: process %d, restart %d", current.Name, current.PID, current.Restarts)
	default:
		return ""
	}
}
