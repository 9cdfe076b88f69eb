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

	"sluice.dev/test/cluster/fakekubelet/machine"
)

var (
	boldStyle  = lipgloss.NewStyle().Bold(true)
	faintStyle = lipgloss.NewStyle().Faint(true)
	okStyle    = lipgloss.NewStyle().Foreground(lipgloss.Green)
	errorStyle = lipgloss.NewStyle().Foreground(lipgloss.Red).Bold(true)
)

// WriteReport prints the one screen that says what runs and how to use it. Colors are
// left out where output is no terminal.
func WriteReport(output io.Writer, report Report) error {
	_, err := lipgloss.Fprint(output, renderReport(report, currentCaller(), time.Local))
	return err
}

// exampleCommand is a command for the person at the screen, and what it shows.
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
	fmt.Fprintf(&text, "\n%s %d in %s; to read it: %s mail --dir %s\n", boldStyle.Render("Mail:"), report.Mail.Count, who.shellPath(report.Mail.Dir), who.program, who.shellPath(report.Dir))
	fmt.Fprintf(&text, "\n%s\n  export KUBECONFIG=%s\n", boldStyle.Render("To use it:"), who.persistentPath(report.Kubeconfig))
	fmt.Fprintf(&text, "\n%s\n", boldStyle.Render("To try:"))
	// They work from any folder.
	tries := []exampleCommand{
		{"kubectl get slpool,sldept,slproj", "pools, departments and projects"},
		{"kubectl get nodes -L sluice.dev/node-pool", fmt.Sprintf("%d simulated DGX A100", len(report.Nodes))},
	}
	if len(report.Nodes) > 0 {
		tries = append(tries, exampleCommand{"kubectl describe slpool " + report.Nodes[0].Pool, "a pool, its nodes and its GPUs"})
	}
	if report.Scheduler == schedulerKueue {
		tries = append(tries, exampleCommand{"kubectl get clusterqueues,workloads -A", "Kueue's queues, and what waits in them"})
	}
	for _, each := range tries {
		fmt.Fprintf(&text, "  %-44s %s\n", each.command, faintStyle.Render("# "+each.description))
	}
	fmt.Fprintf(&text, "\n%s\n  %s down --dir %s\n", boldStyle.Render("To stop and remove it:"), who.program, who.shellPath(report.Dir))
	return text.String()
}

func componentTable(components []Component, who caller) string {
	const most = 8 // agents, as there are as many as nodes
	rows := newTable("COMPONENT", "STATE", "PID", "RESTARTS", "LOG")
	agents, left := 0, 0
	for _, c := range components {
		if isAgent(c.Name) && c.State == "Running" {
			if agents++; agents > most {
				left++
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
	if left > 0 {
		rows.Row(fmt.Sprintf("and %d more agents", left), okStyle.Render("Running"), "", "", "")
	}
	return rows.Render()
}

func nodeTable(nodes []Node) string {
	const most = 8
	rows := newTable("NODE", "POOL", "GPUS")
	for _, n := range nodes[:min(most, len(nodes))] {
		rows.Row(n.Name, n.Pool, n.GPUs)
	}
	if len(nodes) > most {
		rows.Row(fmt.Sprintf("and %d more", len(nodes)-most), "", "")
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

// describeGPUs says in a few words what a machine has when it is new.
func describeGPUs(m machine.Machine) string {
	text := fmt.Sprintf("%d x %s", m.GPUs, m.Product())
	if len(m.MIG) == 0 {
		return text
	}
	return text + " in MIG mode, cut as pods ask"
}

// caller is the person at the shell. What they may copy from the screen has to
// work where they stand and by the name under which they found the program.
type caller struct {
	// program is how the program was called.
	program string
	// dir is the working directory; empty where that is not known.
	dir string
}

func currentCaller() caller {
	who := caller{program: programName(os.Args[0])}
	// Without it paths are absolute. A cluster's own have no links.
	if dir, err := os.Getwd(); err == nil {
		who.dir = resolveSymlinks(dir)
	}
	return who
}

// programName is what to type to call the program that was called as arg0.
func programName(arg0 string) string {
	if filepath.Base(arg0) == "kubectl-sluice" {
		return "kubectl sluice"
	}
	return shellQuote(arg0)
}

// shellPath is a path as the caller may write it, short where it lies below them.
func (c caller) shellPath(path string) string { return shellQuote(c.relativePath(path)) }

// persistentPath is a path that stays right when the caller goes elsewhere; only the
// shell's own variable for the working directory keeps it short.
func (c caller) persistentPath(path string) string {
	short := c.relativePath(path)
	if filepath.IsAbs(short) {
		return shellQuote(short)
	}
	return `"$PWD"/` + shellQuote(short)
}

func (c caller) relativePath(path string) string {
	short, err := filepath.Rel(c.dir, resolveSymlinks(path))
	if err != nil || !filepath.IsLocal(short) {
		return path
	}
	return short
}

// shellQuote is text as one word of a shell's command line.
func shellQuote(text string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-"
	if text != "" && strings.Trim(text, plain) == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
