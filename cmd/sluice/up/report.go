// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice.dev/test/cluster"
	"sluice.dev/test/cluster/mailsink"
	"sluice.dev/test/cluster/process"
)

// reportFile is where a run says what it has started, for other processes.
const reportFile = "report.json"

// Report is what runs, as a person or a machine asks for it.
type Report struct {
	// Server is the API server's URL.
	Server string `json:"server"`
	// Kubeconfig is the path of the administrator's.
	Kubeconfig string `json:"kubeconfig"`
	// Dir is the cluster's folder.
	Dir string `json:"dir"`
	// PID is the process that watches over all the others.
	PID int `json:"pid"`
	// PolicyTime is the time of limits and deadlines, where it is not real time.
	PolicyTime *PolicyTime `json:"policyTime,omitempty"`
	// Scheduler is the one that the cluster was started with.
	Scheduler string `json:"scheduler,omitempty"`
	// Mail is what the mail sink has taken.
	Mail Mail `json:"mail"`
	// Nodes are the simulated machines.
	Nodes []Node `json:"nodes"`
	// Components are the programs, Kubernetes' and Sluice's.
	Components []Component `json:"components"`
}

// Node is one simulated machine.
type Node struct {
	Name string `json:"name"`
	Pool string `json:"pool"`
	GPUs string `json:"gpus"`
}

// Mail is the mail that was sent.
type Mail struct {
	// Dir is the folder in which each mail is a file.
	Dir string `json:"dir"`
	// Count is how many there are.
	Count int `json:"count"`
}

// Component is one program.
type Component struct {
	Name     string    `json:"name"`
	State    string    `json:"state"`
	PID      int       `json:"pid,omitempty"`
	Restarts int       `json:"restarts"`
	Started  time.Time `json:"started"`
	LastExit string    `json:"lastExit,omitempty"`
	Log      string    `json:"log"`
}

func newReport(c *cluster.Cluster, o Options) Report {
	report := Report{
		Server:     c.Config().Host,
		Kubeconfig: c.Kubeconfig(),
		Dir:        c.Dir(),
		PID:        os.Getpid(),
		Scheduler:  o.Scheduler,
		Mail:       Mail{Dir: MailDir(c.Dir())},
	}
	for _, node := range o.nodes() {
		report.Nodes = append(report.Nodes, Node{Name: node.Name, Pool: node.Pool, GPUs: describeGPUs(node.Machine)})
	}
	return report
}

// withComponents is the report with the components as they are now.
func (r Report) withComponents(list []process.Status) Report {
	r.Components = make([]Component, 0, len(list))
	for _, s := range list {
		r.Components = append(r.Components, Component{
			Name: s.Name, State: string(s.State), PID: s.PID, Restarts: s.Restarts,
			Started: s.StartedAt, LastExit: s.LastExit, Log: s.LogPath,
		})
	}
	slices.SortStableFunc(r.Components, func(a, b Component) int {
		return cmp.Or(displayOrder(a.Name)-displayOrder(b.Name), compareNatural(a.Name, b.Name))
	})
	return r
}

// displayOrder orders the screen: those of Kubernetes as they depend on each other,
// then those that are added to it, in the order of their registry, and the nodes'
// agents. They start side by side, and so in any order.
func displayOrder(name string) int {
	names := []string{cluster.Etcd, cluster.APIServer, cluster.ControllerManager, cluster.Scheduler}
	for _, c := range componentRegistry {
		names = append(names, c.name)
	}
	if isAgent(name) {
		return len(names)
	}
	return slices.Index(names, name)
}

func isAgent(component string) bool { return strings.HasPrefix(component, agentProgram+"-") }

// compareNatural orders names that end in a number by that: dgx-2 before dgx-10.
func compareNatural(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) }

// save leaves the report in the cluster's folder, whole.
func (r Report) save(list []process.Status) error {
	raw, err := json.MarshalIndent(r.withComponents(list), "", "  ")
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	path := filepath.Join(r.Dir, reportFile)
	if err := os.WriteFile(path+".new", append(raw, '\n'), 0o600); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return os.Rename(path+".new", path)
}

// ErrNotRunning says that nothing runs in the folder.
var ErrNotRunning = errors.New("nothing runs here")

// Status is the report of the run in dir. It wraps [ErrNotRunning] where there
// is none.
func Status(dir string) (Report, error) {
	var report Report
	pid, err := cluster.Holder(dir)
	if err != nil {
		return report, err
	}
	if pid == 0 {
		who := currentCaller()
		return report, fmt.Errorf("%w: no cluster in %s; start one with `%s up --dir %s`", ErrNotRunning, who.shellPath(dir), who.program, who.shellPath(dir))
	}
	raw, err := os.ReadFile(filepath.Join(dir, reportFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return report, fmt.Errorf("report: %w", err)
	}
	if err == nil {
		if err := json.Unmarshal(raw, &report); err != nil {
			return report, fmt.Errorf("report: %s: %w", reportFile, err)
		}
	}
	if report.PID != pid { // none yet, or an earlier run's
		return report, fmt.Errorf("process %d is bringing the cluster in %s up, or down; ask again in a moment", pid, currentCaller().shellPath(dir))
	}
	return report.refresh()
}

// refresh is the report with what changes by itself: policy time, and how many mails
// there are.
func (r Report) refresh() (Report, error) {
	r, err := r.withPolicyTime()
	if err != nil {
		return r, err
	}
	r.Mail.Count, err = mailsink.Count(r.Mail.Dir)
	return r, err
}

// CheckRunning reports whether a cluster runs in options.Dir. One that options, with
// Detach, are content with is shown on options.Output; any other is an error,
// which says how to stop it, and so are options that no cluster could have.
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
	if against, instead := options.conflictWith(report); against != "" {
		return true, fmt.Errorf("it runs already, %s: %s; %s`%s %s --dir %s`",
			report.describe(), against, instead.words, who.program, instead.command, who.shellPath(report.Dir))
	}
	fmt.Fprint(options.Output, "it runs already\n\n")
	return true, WriteReport(options.Output, report)
}

// suggestion is what to do when the options are against a cluster that runs.
type suggestion struct{ words, command string }

// conflictWith says what the options want and a cluster that runs does not have, and
// what to do instead; empty where they are content with it.
func (o Options) conflictWith(report Report) (string, suggestion) {
	stop := suggestion{"stop it first, with ", "down --keep"}
	switch {
	case !o.NodesUnset && o.Nodes != len(report.Nodes):
		return fmt.Sprintf("--nodes %d does not change it", o.Nodes), stop
	case o.Port != 0 && strconv.Itoa(o.Port) != report.apiServerPort():
		return fmt.Sprintf("--port %d does not change it", o.Port), stop
	case o.TimeScale != 0 && !report.hasTimeScale(o.TimeScale):
		scale := formatScale(o.TimeScale)
		return fmt.Sprintf("--time-scale %s does not change it", scale), suggestion{"but this does: ", "clock scale " + scale}
	case !o.Detach:
		return fmt.Sprintf("process %d watches over it", report.PID), stop
	default:
		return "", suggestion{}
	}
}

// describe says in a few words which cluster this is.
func (r Report) describe() string {
	nodes := "1 node"
	if n := len(r.Nodes); n != 1 {
		nodes = fmt.Sprintf("%d nodes", n)
	}
	return "with " + nodes + " on port " + r.apiServerPort()
}

// apiServerPort is the API server's.
func (r Report) apiServerPort() string {
	server, err := url.Parse(r.Server)
	if err != nil {
		return "" // not written by a run: no port is equal to it
	}
	return server.Port()
}
