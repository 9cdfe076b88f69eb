// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package submission

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
)

// presetFlags are the flags of each type of presets but Template, which has all, and those of a Template alone.
var presetFlags = map[v1alpha1.PresetType][]string{
	v1alpha1.PresetEnvironment: {
		"image", "local-image", "interactive", "train", "inference", "command", "args", "working-dir", "environment", "port", "service-type",
	},
	v1alpha1.PresetDataSource: {"pvc", "nfs", "volume", "host-path", "configmap-file", "secret-file", "git-sync", "s3"},
	v1alpha1.PresetCompute:    {"gpu", "gpu-memory", "mig-profile", "cpu", "memory", "large-shm", "node-pools"},
	v1alpha1.PresetTemplate:   {"preset", "max-runtime", "preemptible", "parallelism", "completions"},
}

// unpresetFlags are the flags that no preset has, with what to do instead.
var unpresetFlags = map[string]string{
	"new-pvc": "a preset names volume claims that exist, and creates none; create the claim once, and name it with --pvc",
	"pytorch": "no field of a preset; give it to sluice submit",
	"host":    "no field of a preset, since one host has one workload; give it to sluice submit",
	"stdin":   "no field of a preset; give it to sluice submit",
	"tty":     "no field of a preset; give it to sluice submit",
}

// PresetFlags returns the names of the flags that a preset can be made of, sorted.
func PresetFlags() []string {
	var names []string
	for _, flags := range presetFlags {
		names = append(names, flags...)
	}
	slices.Sort(names)
	return names
}

// Preset returns the preset that a command line describes. The arguments are its name and what follows the two dashes.
func (f *Flags) Preset(arguments []string, dash int, presetType v1alpha1.PresetType) (*v1alpha1.Preset, error) {
	if len(arguments) == 0 || dash == 0 {
		return nil, errors.New("NAME: give the preset a name")
	}
	r, err := f.parse(arguments, dash)
	if err != nil {
		return nil, err
	}
	problems := append(f.checkPresetFlags(presetType), r.validateMounts()...)
	preset := &v1alpha1.Preset{Spec: v1alpha1.PresetSpec{Type: presetType}}
	preset.APIVersion, preset.Kind, preset.Name = v1alpha1.GroupVersion.String(), "Preset", r.Name
	gpus, err := f.gpuQuantity()
	if problems = append(problems, err); errors.Join(problems...) != nil {
		return nil, errors.Join(problems...)
	}
	preset.Spec.Environment, preset.Spec.DataSource = r.environmentPreset(), r.dataSourcePreset()
	compute := v1alpha1.ComputePreset{
		GPU: gpus, GPUMemory: r.GPUMemory, MIGProfile: r.MIGProfile, CPU: r.CPU, Memory: r.Memory, LargeShm: r.LargeSharedMemory, NodePools: r.NodePools,
	}
	if len(r.NodePools) > 0 || r.LargeSharedMemory || r.CPU != nil || r.Memory != nil || gpus != nil || r.GPUMemory != nil || r.MIGProfile != "" {
		preset.Spec.Compute = &compute
	}
	work := v1alpha1.WorkloadPreset{MaxRuntime: r.MaxRuntime, Preemptible: r.Preemptible}
	if r.Parallelism > 0 {
		work.Parallelism = &r.Parallelism
	}
	if r.Completions > 0 {
		work.Completions = &r.Completions
	}
	if work != (v1alpha1.WorkloadPreset{}) {
		preset.Spec.Workload = &work
	}
	for _, name := range f.presets {
		preset.Spec.Presets = append(preset.Spec.Presets, v1alpha1.PresetName(name))
	}
	if s := &preset.Spec; s.Environment == nil && s.DataSource == nil && s.Compute == nil && s.Workload == nil && len(s.Presets) == 0 {
		return nil, fmt.Errorf("preset %s has no field: give it one, such as --%s", r.Name, presetFlags[presetType][0])
	}
	return preset, nil
}

// checkPresetFlags returns the flags that a preset of the type has not.
func (f *Flags) checkPresetFlags(presetType v1alpha1.PresetType) (problems []error) {
	for _, flag := range slices.Sorted(maps.Keys(unpresetFlags)) {
		if f.set.Changed(flag) {
			problems = append(problems, fmt.Errorf("--%s: %s", flag, unpresetFlags[flag]))
		}
	}
	for _, other := range []v1alpha1.PresetType{v1alpha1.PresetEnvironment, v1alpha1.PresetDataSource, v1alpha1.PresetCompute, v1alpha1.PresetTemplate} {
		if other == presetType || presetType == v1alpha1.PresetTemplate {
			continue
		}
		types := string(other)
		if other != v1alpha1.PresetTemplate {
			types += " or Template"
		}
		for _, flag := range presetFlags[other] {
			if f.set.Changed(flag) {
				problems = append(problems, fmt.Errorf("--%s: is for presets of the type %s; the type is %s", flag, types, presetType))
			}
		}
	}
	return problems
}

// gpuQuantity returns the value of --gpu.
func (f *Flags) gpuQuantity() (*resource.Quantity, error) {
	if f.gpus == "" {
		return nil, nil
	}
	gpus, err := resource.ParseQuantity(f.gpus)
	if err != nil {
		return nil, fmt.Errorf("--gpu %q: want a whole number of GPUs, or a part of one such as 0.5", f.gpus)
	}
	return &gpus, nil
}

// environmentPreset returns the fields of an environment, or nil if the request has none.
func (r *Request) environmentPreset() *v1alpha1.EnvironmentPreset {
	e := &v1alpha1.EnvironmentPreset{
		Image: r.Image, LocalImage: r.LocalImage, WorkloadType: r.Type, Command: r.Command, Args: r.Arguments, WorkingDir: r.WorkingDirectory,
		ServiceType: string(r.ServiceType),
	}
	for i := range r.Environment {
		e.Env = append(e.Env, v1alpha1.PresetVariable{Name: r.Environment[i].Name, Value: r.Environment[i].Value})
	}
	for _, port := range r.Ports {
		p := v1alpha1.PresetPort{Port: port.Service, TargetPort: port.Container}
		if p.TargetPort == p.Port {
			p.TargetPort = 0
		}
		e.Ports = append(e.Ports, p)
	}
	if e.Image == "" && !e.LocalImage && e.WorkloadType == "" && len(e.Command)+len(e.Args)+len(e.Env)+len(e.Ports) == 0 &&
		e.WorkingDir == "" && e.ServiceType == "" {
		return nil
	}
	return e
}

// dataSourcePreset returns the volumes, or nil if the request has none.
func (r *Request) dataSourcePreset() *v1alpha1.DataSourcePreset {
	if len(r.Mounts) == 0 {
		return nil
	}
	d := &v1alpha1.DataSourcePreset{}
	for i := range r.Mounts {
		m := &r.Mounts[i]
		v := v1alpha1.PresetVolume{Path: m.Path, ReadOnly: m.ReadOnly}
		switch s := &m.Source; {
		case s.PersistentVolumeClaim != nil:
			v.PersistentVolumeClaim = &v1alpha1.PresetClaim{ClaimName: s.PersistentVolumeClaim.ClaimName}
		case s.NFS != nil:
			v.NFS = &v1alpha1.PresetNFS{Server: s.NFS.Server, Path: s.NFS.Path}
		case s.HostPath != nil:
			v.HostPath = &v1alpha1.PresetHostPath{Path: s.HostPath.Path}
		case s.ConfigMap != nil:
			v.ReadOnly, v.ConfigMap = false, &v1alpha1.PresetFiles{Name: s.ConfigMap.Name, File: m.File}
		case s.Secret != nil:
			v.ReadOnly, v.Secret = false, &v1alpha1.PresetFiles{Name: s.Secret.SecretName, File: m.File}
		case m.Flag == "--git-sync":
			f := m.Fetch
			v.Git = &v1alpha1.PresetGit{Source: f.Source, Branch: f.Branch, Rev: f.Revision, Secret: f.Secret}
		case m.Flag == "--s3":
			f := m.Fetch
			v.S3 = &v1alpha1.PresetS3{Bucket: f.Bucket, Key: f.Key, URL: f.URL, Region: f.Region, Secret: f.Secret}
		}
		d.Volumes = append(d.Volumes, v)
	}
	return d
}

// ParsePresets reads the Presets of a file of YAML documents. Unknown fields are errors.
func ParsePresets(file []byte) ([]v1alpha1.Preset, error) {
	var presets []v1alpha1.Preset
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(file)))
	for number := 1; ; number++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			if len(presets) == 0 {
				return nil, errors.New("there is no Preset in it")
			}
			return presets, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		var preset v1alpha1.Preset
		var content any
		if err := yaml.Unmarshal(document, &content); err == nil && content == nil {
			continue // nothing but comments
		}
		if err := yaml.UnmarshalStrict(document, &preset); err != nil {
			return nil, fmt.Errorf("document %d: %s", number, strings.ReplaceAll(err.Error(), "\n", " "))
		}
		if preset.APIVersion != v1alpha1.GroupVersion.String() || preset.Kind != "Preset" || preset.Name == "" {
			return nil, fmt.Errorf("document %d: apiVersion %q, kind %q, name %q: want a Preset of %s with a name",
				number, preset.APIVersion, preset.Kind, preset.Name, v1alpha1.GroupVersion)
		}
		presets = append(presets, preset)
	}
}
