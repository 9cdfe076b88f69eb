// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package submission

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"sluice.dev/api/v1alpha1"
)

// Presets are the presets that a submission may name.
type Presets struct {
	// Namespace is the namespace of the workload.
	Namespace string
	// All are those of the namespace and of sluice-system.
	All []v1alpha1.Preset
}

// Find returns the preset of a name, or nil. That of the namespace wins over that of sluice-system.
func (p *Presets) Find(name string) *v1alpha1.Preset {
	for _, namespace := range []string{p.Namespace, v1alpha1.SystemNamespace} {
		at := slices.IndexFunc(p.All, func(preset v1alpha1.Preset) bool { return preset.Namespace == namespace && preset.Name == name })
		if at >= 0 {
			return &p.All[at]
		}
	}
	return nil
}

// Names returns the names by which [Presets.Find] finds a preset, sorted.
func (p *Presets) Names() []string {
	var names []string
	for i := range p.All {
		if n := &p.All[i]; n.Namespace == p.Namespace || n.Namespace == v1alpha1.SystemNamespace {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Settings returns what the named presets set together, in their order. Two of them may set a field only to the same
// value.
func (p *Presets) Settings(names []string) ([]Setting, error) {
	return p.settings(names, nil)
}

// fieldSet are fields that are given elsewhere.
type fieldSet map[string]bool

// hides reports whether the field of a preset has no effect.
func (f fieldSet) hides(s Setting) bool { return f[s.field] || f[hiddenBy[s.field]] }

// settings is Settings without the fields that the user gives.
func (p *Presets) settings(names []string, given fieldSet) ([]Setting, error) {
	var groups [][]Setting
	var problems []error
	for _, name := range names {
		preset := p.Find(name)
		if preset == nil {
			problems = append(problems, fmt.Errorf("--preset %q: %s", name, p.missing()))
			continue
		}
		group, err := p.expand(preset, given)
		if err != nil {
			problems = append(problems, err)
		}
		groups = append(groups, group)
	}
	merged, err := merge(groups)
	return merged, errors.Join(append(problems, err)...)
}

// missing says that a preset does not exist, and which there are.
func (p *Presets) missing() string {
	text := fmt.Sprintf("there is no preset of this name in namespace %s or %s", p.Namespace, v1alpha1.SystemNamespace)
	if names := p.Names(); len(names) > 0 {
		return text + "; there are: " + strings.Join(names, ", ")
	}
	return text + ", and no other; sluice preset create makes one"
}

// expand returns the settings of a preset. Those of a Template win over those of the presets that it names.
func (p *Presets) expand(preset *v1alpha1.Preset, given fieldSet) ([]Setting, error) {
	own := slices.DeleteFunc(OwnSettings(preset), given.hides)
	hidden := fieldSet{}
	for field := range given {
		hidden[field] = true
	}
	for _, s := range own {
		hidden[s.field] = true
	}
	var groups [][]Setting
	var problems []error
	for _, name := range preset.Spec.Presets {
		named := p.Find(string(name))
		switch {
		case named == nil:
			problems = append(problems, fmt.Errorf("preset %s names preset %q: %s", preset.Name, name, p.missing()))
			continue
		case named.Spec.Type == v1alpha1.PresetTemplate:
			problems = append(problems, fmt.Errorf("preset %s names preset %s, which is a Template; a Template consists of presets of the other types",
				preset.Name, name))
			continue
		}
		groups = append(groups, slices.DeleteFunc(OwnSettings(named), hidden.hides))
	}
	merged, err := merge(groups)
	return slices.Concat(merged, own), errors.Join(append(problems, err)...)
}

// merge joins settings of equal rank.
func merge(groups [][]Setting) (merged []Setting, err error) {
	var problems []error
	first := map[string]Setting{}
	for _, s := range slices.Concat(groups...) {
		other, has := first[s.field]
		switch {
		case !has:
			first[s.field] = s
			merged = append(merged, s)
		case other.Flag != s.Flag || other.Value != s.Value:
			problems = append(problems, fmt.Errorf("%s: presets %s and %s set it to different values; use one of them, or set it yourself",
				s.field, other.Preset.Name, s.Preset.Name))
		}
	}
	return merged, errors.Join(problems...)
}

// apply sets the settings in a request that a user has begun. The elements of the user's lists come last.
func (r *Request) apply(settings []Setting) {
	environment, ports, mounts := r.Environment, r.Ports, r.Mounts
	r.Environment, r.Ports, r.Mounts = nil, nil, nil
	for _, s := range settings {
		s.apply(r)
	}
	r.Environment = append(r.Environment, environment...)
	r.Ports = append(r.Ports, ports...)
	r.Mounts = append(r.Mounts, mounts...)
}

// given returns the fields that the command line sets, from the flags and from what follows the two dashes.
func (f *Flags) given(r *Request) fieldSet {
	fields := fieldSet{}
	for field, flags := range map[string][]string{
		fieldType: {"interactive", "train", "inference"}, fieldGPU: {"gpu", "gpu-memory", "mig-profile"},
		"--image": nil, "--local-image": nil, "--command": nil, "--args": nil, "--working-dir": nil, "--service-type": nil, "--cpu": nil,
		"--memory": nil, "--large-shm": nil, "--node-pools": nil, "--max-runtime": nil, "--preemptible": nil, "--parallelism": nil,
		"--completions": nil,
	} {
		if flags == nil {
			flags = []string{strings.TrimPrefix(field, "--")}
		}
		if slices.ContainsFunc(flags, f.set.Changed) {
			fields[field] = true
		}
	}
	if len(r.Arguments) > 0 {
		fields["--args"] = true
	}
	for i := range r.Environment {
		fields[environmentField(r.Environment[i].Name)] = true
	}
	for _, port := range r.Ports {
		fields[portField(port.Service)] = true
	}
	for i := range r.Mounts {
		fields[mountField(r.Mounts[i].Path)] = true
	}
	return fields
}
