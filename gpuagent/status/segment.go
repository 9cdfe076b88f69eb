// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"strings"

	"sluice.dev/api/v1alpha1"
)

// segment is the drawing of an instance, a free slice or a whole GPU.
type segment struct {
	width      int
	instance   *Instance // nil for a free slice or a whole GPU
	isWholeGPU bool
	pods       []string
	style      style
}

// segments returns a GPU's segments from its first slice to its last. It omits instances that
// overlap others or exceed the GPU.
func (g *GPU) segments() (list []segment) {
	if g.Mode.Current != v1alpha1.MIGModeEnabled || g.Slices < 1 {
		style := styleFaint
		if len(g.Pods) > 0 {
			style = styleGood
		}
		return []segment{{width: gpuColumns - 1, isWholeGPU: true, pods: g.Pods, style: style}}
	}
	slot := gpuColumns / g.Slices
	for at := 0; at < g.Slices; {
		size := 1
		c := segment{style: styleFaint}
		for i := range g.Instances {
			if each := &g.Instances[i]; each.Start == at && each.Size > 0 && at+each.Size <= g.Slices {
				c.instance, size, c.style = each, each.Size, instanceStyle(each)
			}
		}
		c.width = size*slot - 1
		list = append(list, c)
		at += size
	}
	return list
}

func instanceStyle(i *Instance) style {
	switch {
	case i.State == v1alpha1.InstanceError:
		return styleError
	case i.Foreign || i.State == v1alpha1.InstanceReclaiming:
		return styleWarning
	case i.State == v1alpha1.InstanceActive:
		return styleGood
	}
	return styleFaint
}

// label returns the first line of a segment.
func (c segment) label() string {
	switch {
	case c.isWholeGPU:
		return "whole"
	case c.instance == nil:
		return strings.Repeat(".", c.width)
	}
	name := sanitize(string(c.instance.Profile))
	if c.instance.Foreign {
		name = "*" + name
	}
	if len(name) > c.width {
		// The short form still distinguishes the profiles of a GPU model: 1g+me.
		compute, rest, _ := strings.Cut(name, ".")
		if _, attribute, ok := strings.Cut(rest, "+"); ok {
			compute += "+" + attribute
		}
		name = compute
	}
	return truncate(name, c.width)
}

// holderLabel returns the second line of a segment: its holder or its state.
func (c segment) holderLabel() string {
	switch {
	case c.isWholeGPU && len(c.pods) == 0:
		return "idle"
	case c.isWholeGPU:
		return truncate(sanitize(strings.Join(c.pods, ", ")), c.width)
	case c.instance == nil:
		return ""
	case c.instance.Pod != "":
		return c.podLabel()
	case c.instance.State == v1alpha1.InstanceActive:
		return truncate("in use", c.width)
	case c.instance.Foreign:
		return truncate("foreign", c.width)
	}
	return truncate(strings.ToLower(string(c.instance.State)), c.width)
}

// podLabel returns the longest form that fits: h2/train-0 91%, h2/train-0, train-0.
func (c segment) podLabel() string {
	pod := sanitize(c.instance.Pod)
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
	return truncate(name, c.width)
}
