// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"fmt"
	"strings"

	"sluice.dev/api/v1alpha1"
)

// cell is what is drawn of one instance, of one free slice, or of a GPU that is whole.
type cell struct {
	width    int
	instance *Instance // nil where there is none
	whole    bool
	pods     []string
	style    style
}

// cells are a GPU's, from its first slice to its last. What lies over another, or
// beyond the board, is left out rather than drawn over the edge.
func (g *GPU) cells() (list []cell) {
	if g.Mode.Current != v1alpha1.MIGModeEnabled || g.Slices < 1 {
		style := faint
		if len(g.Pods) > 0 {
			style = good
		}
		return []cell{{width: inner - 1, whole: true, pods: g.Pods, style: style}}
	}
	slot := inner / g.Slices
	for at := 0; at < g.Slices; {
		size := 1
		c := cell{style: faint}
		for i := range g.Instances {
			if each := &g.Instances[i]; each.Start == at && each.Size > 0 && at+each.Size <= g.Slices {
				c.instance, size, c.style = each, each.Size, styleOf(each)
			}
		}
		c.width = size*slot - 1
		list = append(list, c)
		at += size
	}
	return list
}

func styleOf(i *Instance) style {
	switch {
	case i.State == v1alpha1.InstanceError:
		return bad
	case i.Foreign || i.State == v1alpha1.InstanceReclaiming:
		return notice
	case i.State == v1alpha1.InstanceActive:
		return good
	}
	return faint
}

// name is what the cell is.
func (c cell) name() string {
	switch {
	case c.whole:
		return "whole"
	case c.instance == nil:
		return strings.Repeat(".", c.width)
	}
	name := clean(string(c.instance.Profile))
	if c.instance.Foreign {
		name = "*" + name
	}
	if len(name) > c.width {
		// What tells profiles apart on one board: 1g+me.
		compute, rest, _ := strings.Cut(name, ".")
		if _, attribute, ok := strings.Cut(rest, "+"); ok {
			compute += "+" + attribute
		}
		name = compute
	}
	return fit(name, c.width)
}

// holder is who has the cell, or why nobody can, as far as there is room.
func (c cell) holder() string {
	switch {
	case c.whole && len(c.pods) == 0:
		return "idle"
	case c.whole:
		return fit(clean(strings.Join(c.pods, ", ")), c.width)
	case c.instance == nil:
		return ""
	case c.instance.Pod != "":
		return c.podName()
	case c.instance.State == v1alpha1.InstanceActive:
		return fit("in use", c.width)
	case c.instance.Foreign:
		return fit("foreign", c.width)
	}
	return fit(strings.ToLower(string(c.instance.State)), c.width)
}

// podName is the longest form that fits: h2/train-0 91%, h2/train-0, train-0.
func (c cell) podName() string {
	pod := clean(c.instance.Pod)
	_, name, found := strings.Cut(pod, "/")
	if !found {
		name = pod
	}
	if c.instance.MemoryMiB > 0 && c.instance.UsedMiB > 0 {
		with := fmt.Sprintf("%s %d%%", pod, 100*c.instance.UsedMiB/c.instance.MemoryMiB)
		if len([]rune(with)) <= c.width {
			return with
		}
	}
	if len([]rune(pod)) <= c.width {
		return pod
	}
	return fit(name, c.width)
}
