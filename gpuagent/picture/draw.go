// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/api/v1alpha1"
)

// inner is how many columns the slices of one GPU have together: a multiple of 8 and of
// 4, so that with the margin no line has more than 80.
const inner = 72

// Draw draws a node, with colours if they are wanted.
func Draw(node Node, colours bool) string {
	p := pen{colours: colours}
	var out strings.Builder
	fmt.Fprintln(&out, p.in(strong, clean(headline(node))))
	for _, trouble := range node.Troubles {
		for _, line := range wrap("! "+clean(trouble), "  ") {
			fmt.Fprintln(&out, p.in(bad, line))
		}
	}
	for i := range node.GPUs {
		out.WriteString("\n" + p.gpu(&node.GPUs[i]))
	}
	if node.foreign() {
		fmt.Fprintln(&out, "\n"+p.in(notice, "* foreign: neither the spec nor Sluice has made it, and it is left alone"))
	}
	out.WriteString("\n" + p.processes(node.Processes))
	return out.String()
}

func (n *Node) foreign() bool {
	return slices.ContainsFunc(n.GPUs, func(g GPU) bool {
		return slices.ContainsFunc(g.Instances, func(i Instance) bool { return i.Foreign })
	})
}

func headline(node Node) string {
	parts := []string{count(len(node.GPUs), "GPU")}
	if node.Name != "" {
		parts = append([]string{node.Name}, parts...)
	}
	if node.DriverVersion != "" {
		parts = append(parts, "driver "+node.DriverVersion)
	}
	return strings.Join(append(parts, node.At.UTC().Format("2006-01-02 15:04:05Z")), "   ")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// gpu is one GPU: a line about it, and where it answers two with its slices.
func (p pen) gpu(gpu *GPU) string {
	var out strings.Builder
	model := clean(strings.TrimPrefix(gpu.Model, "NVIDIA "))
	head := fmt.Sprintf("GPU %-2d %-24s %-8s %s", gpu.Index, fit(model, 24), mode(gpu.Mode), memory(gpu))
	fmt.Fprintln(&out, strings.TrimRight(head, " "))
	if gpu.Health != v1alpha1.GPUHealthy && gpu.Health != "" {
		text := strings.ToLower(string(gpu.Health))
		if gpu.Message != "" {
			text += ": " + clean(gpu.Message)
		}
		for _, line := range wrap("  "+text, "  ") {
			fmt.Fprintln(&out, p.in(bad, line))
		}
		return out.String()
	}
	cells := gpu.cells()
	var names, holders strings.Builder
	for _, c := range cells {
		names.WriteString("|" + p.in(c.style, pad(c.name(), c.width)))
		holders.WriteString("|" + p.in(c.style, pad(c.holder(), c.width)))
	}
	fmt.Fprintf(&out, "  %s|\n  %s|\n", names.String(), holders.String())
	if gpu.Message != "" {
		for _, line := range wrap("  "+clean(gpu.Message), "  ") {
			fmt.Fprintln(&out, p.in(notice, line))
		}
	}
	return out.String()
}

func mode(m v1alpha1.MIGMode) string {
	words := map[v1alpha1.MIGModeState]string{v1alpha1.MIGModeEnabled: "MIG", v1alpha1.MIGModeDisabled: "whole"}
	if m.Pending != "" && m.Pending != m.Current {
		return words[m.Current] + ", after its reset " + words[m.Pending] + " "
	}
	return words[m.Current]
}

func memory(gpu *GPU) string {
	if gpu.MemoryMiB == 0 {
		return ""
	}
	text := fmt.Sprintf("%.1f GiB", float64(gpu.MemoryMiB)/1024)
	if gpu.UsedMiB != nil {
		text = fmt.Sprintf("%.1f of %s used", float64(*gpu.UsedMiB)/1024, text)
	}
	if gpu.Utilisation != nil {
		text += fmt.Sprintf(", %d%% busy", *gpu.Utilisation)
	}
	return text
}

// processes is the table of processes.
func (p pen) processes(list []Process) string {
	if len(list) == 0 {
		return p.in(faint, "No process is on a GPU.") + "\n"
	}
	var out strings.Builder
	fmt.Fprintln(&out, p.in(strong, fmt.Sprintf("%10s  %-38s %-4s%-16s%8s", "PID", "POD", "GPU", "DEVICE", "MIB")))
	for _, each := range list {
		pod, held := clean(each.Pod), "?"
		if pod == "" {
			pod = "-"
		}
		if each.MemoryMiB != nil {
			held = strconv.FormatInt(*each.MemoryMiB, 10)
		}
		fmt.Fprintf(&out, "%10d  %-38s %-4d%-16s%8s\n", each.PID, fit(pod, 38), each.GPU, fit(clean(each.Device), 15), held)
	}
	return out.String()
}
