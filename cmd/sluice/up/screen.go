// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

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
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s\n\n", strong.Render("Sluice runs on Kubernetes at"), report.Server)
	fmt.Fprintln(&text, componentTable(report.Components))
	fmt.Fprintln(&text)
	fmt.Fprintln(&text, nodeTable(report.Nodes))
	fmt.Fprintf(&text, "\n%s\n  export KUBECONFIG=%s\n", strong.Render("To use it:"), relative(report.Kubeconfig))
	fmt.Fprintf(&text, "\n%s\n", strong.Render("To try:"))
	for _, try := range tries {
		fmt.Fprintf(&text, "  %-62s %s\n", try.command, faint.Render("# "+try.what))
	}
	fmt.Fprintf(&text, "\n%s\n  sluice down --dir %s\n", strong.Render("To stop and remove it:"), relative(report.Dir))
	_, err := lipgloss.Fprint(output, text.String())
	return err
}

var tries = []struct{ command, what string }{
	{"kubectl get slpool,sldept,slproj", "pools, departments and projects"},
	{"kubectl get nodes -L sluice.dev/node-pool", "two simulated DGX A100"},
	{"kubectl apply -f manifests/samples/pods/notebook.yaml", "a pod with a slice of a GPU"},
}

func componentTable(components []Component) string {
	rows := newTable("COMPONENT", "STATE", "PID", "RESTARTS", "LOG")
	for _, c := range components {
		state := good.Render(c.State)
		if c.State != "Running" {
			state = bad.Render(c.State)
		}
		pid := strconv.Itoa(c.PID)
		if c.PID == 0 {
			pid = "-"
		}
		rows.Row(c.Name, state, pid, strconv.Itoa(c.Restarts), relative(c.Log))
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

// gpus says in a few words what a machine has.
func gpus(m machine.Machine) string {
	text := fmt.Sprintf("%d x %s", m.GPUs, m.Product)
	if len(m.MIG) == 0 {
		return text
	}
	counts := map[string]int{}
	for _, cut := range m.MIG {
		on := len(cut.Devices)
		if on == 0 {
			on = m.GPUs
		}
		for _, instance := range cut.Instances {
			counts[instance.Profile] += on
		}
	}
	var parts []string
	for profile, n := range counts {
		parts = append(parts, fmt.Sprintf("%d x %s", n, profile))
	}
	slices.Sort(parts)
	return text + ", cut into " + strings.Join(parts, ", ")
}

// relative shortens a path for a person who stands in its neighbourhood.
func relative(path string) string {
	here, err := os.Getwd()
	if err != nil {
		return path
	}
	short, err := filepath.Rel(here, path)
	if err != nil || strings.HasPrefix(short, "..") {
		return path
	}
	return short
}
