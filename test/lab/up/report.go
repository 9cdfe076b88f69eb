// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sluice.dev/test/lab/cluster"
	"sluice.dev/test/lab/cluster/mailsink"
	"sluice.dev/test/lab/cluster/process"
)

// reportFile has the report of a run for other processes.
const reportFile = "report.json"

// Report describes a running cluster.
type Report struct {
	// Server is the API server's URL.
	Server string `json:"server"`
	// Kubeconfig is the path of the administrator's kubeconfig.
	Kubeconfig string `json:"kubeconfig"`
	// Dir is the cluster's folder.
	Dir string `json:"dir"`
	// PID is the process of the run, which supervises the components.
	PID int `json:"pid"`
	// PolicyTime is nil while policy time is real time.
	PolicyTime *PolicyTime `json:"policyTime,omitempty"`
	// Scheduler is one of Schedulers.
	Scheduler string `json:"scheduler,omitempty"`
	// Mail is the mail that the mail sink has.
	Mail Mail `json:"mail"`
	// Nodes are the simulated nodes.
	Nodes []Node `json:"nodes"`
	// Components are the programs of Kubernetes and Sluice.
	Components []Component `json:"components"`
}

// Node is one simulated node.
type Node struct {
	Name string `json:"name"`
	Pool string `json:"pool"`
	GPUs string `json:"gpus"`
}

// Mail is the mail that the mail sink has.
type Mail struct {
	// Dir has a file for each mail.
	Dir string `json:"dir"`
	// Count is the number of mails.
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

// withComponents returns the report with the current state of the components. A part of this
// process, the launcher, is shown only when it fails.
func (r Report) withComponents(list []process.Status) Report {
	r.Components = make([]Component, 0, len(list))
	for _, s := range list {
		if s.State == process.Running && s.PID == 0 {
			continue
		}
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

// displayOrder returns the place of a component on the screen: Kubernetes by
// dependency, then the registry's components, then the pods by their program.
func displayOrder(name string) int {
	names := []string{cluster.Etcd, cluster.APIServer, cluster.ControllerManager, cluster.Scheduler}
	for _, c := range componentRegistry {
		names = append(names, c.name)
	}
	if place := slices.Index(names, name); place >= 0 {
		return place
	}
	return len(names) + slices.IndexFunc(sluicePrograms, func(program string) bool {
		return name == program || strings.HasPrefix(name, program+"-")
	})
}

func isAgent(component string) bool { return strings.HasPrefix(component, agentProgram+"-") }

// compareNatural compares names that end in a number: dgx-2 before dgx-10.
func compareNatural(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) }

// save writes the report with its components to the cluster's folder.
func (r Report) save(list []process.Status) error {
	raw, err := json.MarshalIndent(r.withComponents(list), "", "  ")
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	return writeFileAtomically(filepath.Join(r.Dir, reportFile), append(raw, '\n'))
}

// refresh returns the report with the current policy time and number of mails.
func (r Report) refresh() (Report, error) {
	r, err := r.withPolicyTime()
	if err != nil {
		return r, err
	}
	r.Mail.Count, err = mailsink.Count(r.Mail.Dir)
	return r, err
}

// describe returns the number of nodes and the port.
func (r Report) describe() string {
	nodes := "1 node"
	if n := len(r.Nodes); n != 1 {
		nodes = fmt.Sprintf("%d nodes", n)
	}
	return "with " + nodes + " on port " + r.apiServerPort()
}

// apiServerPort returns the port of the API server.
func (r Report) apiServerPort() string {
	server, err := url.Parse(r.Server)
	if err != nil {
		return "" // equal to no port
	}
	return server.Port()
}
