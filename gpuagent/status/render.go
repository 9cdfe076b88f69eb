// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/api/v1alpha1"
)

// gpuColumns is the total width of a GPU's slices: a multiple of 8 and of 4, so that with the
// margin no line exceeds 80 columns.
const gpuColumns = 72

// Render draws a node, optionally with colors.
func Render(node Node, colors bool) string {
	p := renderer{colored: colors}
	var out strings.Builder
	fmt.Fprintln(&out, p.styled(styleBold, sanitize(renderHeadline(node))))
	for _, trouble := range node.Problems {
		for _, line := range wrap("! "+sanitize(trouble), "  ") {
			fmt.Fprintln(&out, p.styled(styleError, line))
		}
	}
	for i := range node.GPUs {
		out.WriteString("\n" + p.renderGPU(&node.GPUs[i]))
	}
	if node.hasForeign() {
		fmt.Fprintln(&out, "\n"+p.styled(styleWarning, "* foreign: neither the spec nor Sluice has made it, and it is left alone"))
	}
	out.WriteString("\n" + p.renderProcesses(node.Processes))
	return out.String()
}

func (n *Node) hasForeign() bool {
	return slices.ContainsFunc(n.GPUs, func(g GPU) bool {
		return slices.ContainsFunc(g.Instances, func(i Instance) bool { return i.Foreign })
	})
}

func renderHeadline(node Node) string {
	parts := []string{pluralize(len(node.GPUs), "GPU")}
	if node.Name != "" {
		parts = append([]string{node.Name}, parts...)
	}
	if node.DriverVersion != "" {
		parts = append(parts, "driver "+node.DriverVersion)
	}
	return strings.Join(append(parts, node.ObservedAt.UTC().Format("2006-01-02 15:04:05Z")), "   ")
}

func pluralize(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// renderGPU draws one GPU: a line about it, and two with its slices unless it is unhealthy.
func (p renderer) renderGPU(gpu *GPU) string {
	var out strings.Builder
	model := sanitize(strings.TrimPrefix(gpu.Model, "NVIDIA "))
	head := fmt.Sprintf("GPU %-2d %-24s %-8s %s", gpu.Index, truncate(model, 24), formatMode(gpu.Mode), formatMemory(gpu))
	fmt.Fprintln(&out, strings.TrimRight(head, " "))
	if gpu.Health != v1alpha1.GPUHealthy && gpu.Health != "" {
		text := strings.ToLower(string(gpu.Health))
		if gpu.Message != "" {
			text += ": " + sanitize(gpu.Message)
		}
		for _, line := range wrap("  "+text, "  ") {
			fmt.Fprintln(&out, p.styled(styleError, line))
		}
		return out.String()
	}
	cells := gpu.segments()
	var names, holders strings.Builder
	for _, c := range cells {
		names.WriteString("|" + p.styled(c.style, pad(c.label(), c.width)))
		holders.WriteString("|" + p.styled(c.style, pad(c.holderLabel(), c.width)))
	}
	fmt.Fprintf(&out, "  %s|\n  %s|\n", names.String(), holders.String())
	if gpu.Message != "" {
		for _, line := range wrap("  "+sanitize(gpu.Message), "  ") {
			fmt.Fprintln(&out, p.styled(styleWarning, line))
		}
	}
	return out.String()
}

func formatMode(m v1alpha1.MIGMode) string {
	words := map[v1alpha1.MIGModeState]string{v1alpha1.MIGModeEnabled: "MIG", v1alpha1.MIGModeDisabled: "whole"}
	if m.Pending != "" && m.Pending != m.Current {
		return words[m.Current] + ", after its reset " + words[m.Pending] + " "
	}
	return words[m.Current]
}

func formatMemory(gpu *GPU) string {
	if gpu.MemoryMiB == 0 {
		return ""
	}
	text := fmt.Sprintf("%.1f GiB", float64(gpu.MemoryMiB)/1024)
	if gpu.UsedMiB != nil {
		text = fmt.Sprintf("%.1f of %s used", float64(*gpu.UsedMiB)/1024, text)
	}
	if gpu.Utilization != nil {
		text += fmt.Sprintf(", %d%% busy", *gpu.Utilization)
	}
	return text
}

// renderProcesses returns the table of processes.
func (p renderer) renderProcesses(list []Process) string {
	if len(list) == 0 {
		return p.styled(styleFaint, "No process is on a GPU.") + "\n"
	}
	var out strings.Builder
	fmt.Fprintln(&out, p.styled(styleBold, fmt.Sprintf("%10s  %-38s %-4s%-16s%8s", "PID", "POD", "GPU", "DEVICE", "MIB")))
	for _, each := range list {
		pod, held := sanitize(each.Pod), "?"
		if pod == "" {
			pod = formatOther(each.Other)
		}
		if each.MemoryMiB != nil {
			held = strconv.FormatInt(*each.MemoryMiB, 10)
		}
		fmt.Fprintf(&out, "%10d  %-38s %-4d%-16s%8s\n", each.PID, truncate(pod, 38), each.GPU, truncate(sanitize(each.Device), 15), held)
	}
	return out.String()
}

// formatOther returns the text for a process outside of pods: "- python3 of job 463".
func formatOther(other *v1alpha1.OtherProcess) string {
	switch {
	case other == nil:
		return "-"
	case other.Owner == "":
		return sanitize("- " + other.Name)
	}
	return sanitize("- " + other.Name + " of " + other.Owner)
}

// maxColumns is the maximal width of a line.
const maxColumns = 80

// style is the parameter of a terminal's SGR sequence.
type style string

const (
	styleBold    style = "1"
	styleFaint   style = "2"
	styleGood    style = "32"
	styleWarning style = "33"
	styleError   style = "1;31"
)

// renderer draws with or without colors.
type renderer struct{ colored bool }

func (p renderer) styled(s style, text string) string {
	if !p.colored || strings.TrimSpace(text) == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// sanitize replaces characters that a terminal interprets.
func sanitize(text string) string {
	return strings.Map(func(r rune) rune {
		if strconv.IsGraphic(r) {
			return r
		}
		return '?'
	}, text)
}

// truncate shortens a text to a width.
func truncate(text string, width int) string {
	runes := []rune(text)
	switch {
	case len(runes) <= width:
		return text
	case width < 1:
		return ""
	}
	return string(runes[:width-1]) + "…"
}

// pad appends spaces up to a width.
func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-len([]rune(text))))
}

// wrap breaks a text between words into lines and indents all but the first.
func wrap(text, indent string) (lines []string) {
	line := text[:len(text)-len(strings.TrimLeft(text, " "))]
	empty := true
	for word := range strings.FieldsSeq(text) {
		if !empty && len([]rune(line))+1+len([]rune(word)) > maxColumns {
			lines = append(lines, line)
			line, empty = indent, true
		}
		if !empty {
			line += " "
		}
		line += truncate(word, maxColumns-len(indent))
		empty = false
	}
	return append(lines, line)
}
