// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"

	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/test/lab/cluster/fakekubelet/devices"
)

var (
	boldStyle  = lipgloss.NewStyle().Bold(true)
	faintStyle = lipgloss.NewStyle().Faint(true)
	okStyle    = lipgloss.NewStyle().Foreground(lipgloss.Green)
	errorStyle = lipgloss.NewStyle().Foreground(lipgloss.Red).Bold(true)
)

// WriteReport prints the screen, which shows a running cluster and how to use it. It
// prints colors only to a terminal.
func WriteReport(output io.Writer, report Report) error {
	_, err := lipgloss.Fprint(output, renderReport(report, currentCaller(), time.Local))
	return err
}

// exampleCommand is a command on the screen, and what it shows.
type exampleCommand struct{ command, description string }

func renderReport(report Report, who caller, zone *time.Location) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s\n\n", boldStyle.Render("Sluice runs on Kubernetes at"), report.Server)
	if report.PolicyTime != nil {
		fmt.Fprintf(&text, "%s %s\n\n", boldStyle.Render("Policy time is"), report.PolicyTime.Summary(zone))
	}
	fmt.Fprintln(&text, componentTable(report.Components, who))
	fmt.Fprintln(&text)
	fmt.Fprintln(&text, nodeTable(report.Nodes))
	fmt.Fprintf(&text, "\n%s %d in %s; to list it: %s mail list --dir %s\n", boldStyle.Render("Mail:"), report.Mail.Count,
		who.shellPath(report.Mail.Dir), who.program, who.shellPath(report.Dir))
	fmt.Fprintf(&text, "\n%s\n  export KUBECONFIG=%s\n", boldStyle.Render("To use it:"), who.persistentPath(report.Kubeconfig))
	fmt.Fprintf(&text, "\n%s\n", boldStyle.Render("To try:"))
	examples := []exampleCommand{
		{"kubectl get slpool,sldept,slproj", "node pools, departments and projects"},
		{"kubectl get nodes -L sluice.dev/node-pool", fmt.Sprintf("%d simulated DGX A100", len(report.Nodes))},
	}
	if len(report.Nodes) > 0 {
		examples = append(examples, exampleCommand{"kubectl describe slpool " + report.Nodes[0].Pool, "a node pool, its nodes and its GPUs"})
	}
	if report.Scheduler == schedulerKueue {
		examples = append(examples, exampleCommand{"kubectl get clusterqueues,workloads -A", "Kueue's queues and their workloads"})
	}
	for _, example := range examples {
		fmt.Fprintf(&text, "  %-44s %s\n", example.command, faintStyle.Render("# "+example.description))
	}
	fmt.Fprintf(&text, "\n%s\n  %s down --dir %s\n", boldStyle.Render("To stop and remove it:"), who.program, who.shellPath(report.Dir))
	return text.String()
}

func componentTable(components []Component, who caller) string {
	const maxAgents = 8
	rows := newTable("COMPONENT", "STATE", "PID", "RESTARTS", "LOG")
	agents, omitted := 0, 0
	for _, c := range components {
		if isAgent(c.Name) && c.State == "Running" {
			if agents++; agents > maxAgents {
				omitted++
				continue
			}
		}
		state := okStyle.Render(c.State)
		if c.State != "Running" {
			state = errorStyle.Render(c.State)
		}
		pid := strconv.Itoa(c.PID)
		if c.PID == 0 {
			pid = "-"
		}
		rows.Row(c.Name, state, pid, strconv.Itoa(c.Restarts), who.shellPath(c.Log))
	}
	if omitted > 0 {
		rows.Row(fmt.Sprintf("and %d more agents", omitted), okStyle.Render("Running"), "", "", "")
	}
	return rows.Render()
}

func nodeTable(nodes []Node) string {
	const maxRows = 8
	rows := newTable("NODE", "POOL", "GPUS")
	for _, n := range nodes[:min(maxRows, len(nodes))] {
		rows.Row(n.Name, n.Pool, n.GPUs)
	}
	if len(nodes) > maxRows {
		rows.Row(fmt.Sprintf("and %d more", len(nodes)-maxRows), "", "")
	}
	return rows.Render()
}

func newTable(headers ...string) *table.Table {
	return table.New().
		Headers(headers...).
		Border(lipgloss.HiddenBorder()).
		BorderTop(false).BorderBottom(false).BorderLeft(false).BorderRight(false).BorderHeader(false).
		StyleFunc(func(row, _ int) lipgloss.Style {
			style := lipgloss.NewStyle().PaddingLeft(2)
			if row == table.HeaderRow {
				return style.Bold(true)
			}
			return style
		})
}

// describeGPUs describes the GPUs of a new machine.
func describeGPUs(m devices.Machine) string {
	text := fmt.Sprintf("%d x %s", m.GPUs, m.Product())
	if len(m.MIG) == 0 {
		return text
	}
	return text + " in MIG mode, partitioned on demand"
}

// caller is the user's shell. Commands on the screen must work in its working
// directory, with the program's name as the user typed it.
type caller struct {
	// program is the program as the user typed it.
	program string
	// dir is the working directory; empty if unknown.
	dir string
}

func currentCaller() caller {
	who := caller{program: programName(os.Args[0])}
	// Without it all paths are absolute. Those of a cluster have no symbolic links.
	if dir, err := os.Getwd(); err == nil {
		who.dir = resolveSymlinks(dir)
	}
	return who
}

// programName returns the command that calls the program again.
func programName(arg0 string) string {
	if filepath.Base(arg0) == "kubectl-sluice" {
		return "kubectl sluice"
	}
	return printer.ShellQuote(arg0)
}

// shellPath returns a quoted path, relative if it is below the working directory.
func (c caller) shellPath(path string) string { return printer.ShellQuote(c.relativePath(path)) }

// persistentPath returns a quoted path that stays valid when the user changes the
// working directory.
func (c caller) persistentPath(path string) string {
	short := c.relativePath(path)
	if filepath.IsAbs(short) {
		return printer.ShellQuote(short)
	}
	return `"$PWD"/` + printer.ShellQuote(short)
}

func (c caller) relativePath(path string) string {
	short, err := filepath.Rel(c.dir, resolveSymlinks(path))
	if err != nil || !filepath.IsLocal(short) {
		return path
	}
	return short
}
