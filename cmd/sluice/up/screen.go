// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"

	"sluice.dev/test/cluster/fakekubelet/machine"
)

var (
	strong = lipgloss.NewStyle().Bold(true)
	faint  = lipgloss.NewStyle().Faint(true)
	good   = lipgloss.NewStyle().Foreground(lipgloss.Green)
	bad    = lipgloss.NewStyle().Foreground(lipgloss.Red).Bold(true)
)

// Show prints the one screen that says what runs and how to use it. Colours are
// left out where output is no terminal.
func Show(output io.Writer, report Report) error {
	_, err := lipgloss.Fprint(output, screen(report, theCaller(), time.Local))
	return err
}

// try is a command for the person at the screen, and what it shows.
type try struct{ command, what string }

func screen(report Report, who caller, zone *time.Location) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s\n\n", strong.Render("Sluice runs on Kubernetes at"), report.Server)
	if report.PolicyTime != nil {
		fmt.Fprintf(&text, "%s %s\n\n", strong.Render("Policy time is"), report.PolicyTime.Phrase(zone))
	}
	fmt.Fprintln(&text, componentTable(report.Components, who))
	fmt.Fprintln(&text)
	fmt.Fprintln(&text, nodeTable(report.Nodes))
	fmt.Fprintf(&text, "\n%s %d in %s; to read it: %s mail --dir %s\n", strong.Render("Mail:"), report.Mail.Count, who.path(report.Mail.Dir), who.program, who.path(report.Dir))
	fmt.Fprintf(&text, "\n%s\n  export KUBECONFIG=%s\n", strong.Render("To use it:"), who.lasting(report.Kubeconfig))
	fmt.Fprintf(&text, "\n%s\n", strong.Render("To try:"))
	// They work from any folder.
	tries := []try{
		{"kubectl get slpool,sldept,slproj", "pools, departments and projects"},
		{"kubectl get nodes -L sluice.dev/node-pool", fmt.Sprintf("%d simulated DGX A100", len(report.Nodes))},
	}
	if len(report.Nodes) > 0 {
		tries = append(tries, try{"kubectl describe slpool " + report.Nodes[0].Pool, "a pool, its nodes and its GPUs"})
	}
	if report.Scheduler == schedulerKueue {
		tries = append(tries, try{"kubectl get clusterqueues,workloads -A", "Kueue's queues, and what waits in them"})
	}
	for _, each := range tries {
		fmt.Fprintf(&text, "  %-44s %s\n", each.command, faint.Render("# "+each.what))
	}
	fmt.Fprintf(&text, "\n%s\n  %s down --dir %s\n", strong.Render("To stop and remove it:"), who.program, who.path(report.Dir))
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
		state := good.Render(c.State)
		if c.State != "Running" {
			state = bad.Render(c.State)
		}
		pid := strconv.Itoa(c.PID)
		if c.PID == 0 {
			pid = "-"
		}
		rows.Row(c.Name, state, pid, strconv.Itoa(c.Restarts), who.path(c.Log))
	}
	if left > 0 {
		rows.Row(fmt.Sprintf("and %d more agents", left), good.Render("Running"), "", "", "")
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

// gpus says in a few words what a machine has when it is new.
func gpus(m machine.Machine) string {
	text := fmt.Sprintf("%d x %s", m.GPUs, m.Product())
	if len(m.MIG) == 0 {
		return text
	}
	return text + " in MIG mode, cut as pods ask"
}
