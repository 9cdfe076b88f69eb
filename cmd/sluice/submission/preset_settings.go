// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package submission

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
)

// Setting is one field that a preset sets, written as the flag of submit that sets the same.
type Setting struct {
	// Flag is such as --image, Value such as python:3.12; a switch has no value.
	Flag, Value string
	// Preset is the preset that sets it: for the fields of a Template's presets, that one and not the Template.
	Preset *v1alpha1.Preset

	// field is what at most one preset may set: the flag, with the key of an element of a list.
	field string
	apply func(*Request)
}

// String returns the flag with its value.
func (s Setting) String() string { return strings.TrimSuffix(s.Flag+" "+s.Value, " ") }

// The fields that several flags set.
const (
	fieldType = "--interactive, --train or --inference"
	fieldGPU  = "--gpu, --gpu-memory or --mig-profile"
)

// hiddenBy has the fields that mean nothing beside another one's new value: the arguments of a command that is
// replaced, and whether an image that is replaced is on the node.
var hiddenBy = map[string]string{"--args": "--command", "--local-image": "--image"}

func environmentField(name string) string { return "--environment " + name }
func portField(port int32) string         { return "--port " + strconv.Itoa(int(port)) }
func mountField(to string) string         { return "a volume at " + path.Clean(to) }

// settingList collects the settings of one preset.
type settingList struct {
	preset *v1alpha1.Preset
	all    []Setting
}

func (l *settingList) add(field, flag, value string, apply func(*Request)) {
	l.all = append(l.all, Setting{Flag: flag, Value: value, Preset: l.preset, field: field, apply: apply})
}

// addText adds a field whose flag has its value, unless it is empty.
func (l *settingList) addText(flag, value string, apply func(*Request)) {
	if value != "" {
		l.add(flag, flag, value, apply)
	}
}

func (l *settingList) addSwitch(flag string, on bool, apply func(*Request)) {
	if on {
		l.add(flag, flag, "", apply)
	}
}

// OwnSettings returns the settings of a preset without those of the presets that it names.
func OwnSettings(preset *v1alpha1.Preset) []Setting {
	l := &settingList{preset: preset}
	spec := &preset.Spec
	if spec.Environment != nil {
		l.addEnvironment(spec.Environment)
	}
	if spec.DataSource != nil {
		for i := range spec.DataSource.Volumes {
			l.addVolume(&spec.DataSource.Volumes[i])
		}
	}
	if spec.Compute != nil {
		l.addCompute(spec.Compute)
	}
	if w := spec.Workload; w != nil {
		if w.MaxRuntime != nil {
			l.addText("--max-runtime", w.MaxRuntime.String(), func(r *Request) { r.MaxRuntime = w.MaxRuntime })
		}
		l.addSwitch("--preemptible", w.Preemptible, func(r *Request) { r.Preemptible = true })
		if n := ptr.Deref(w.Parallelism, 0); n > 0 {
			l.addText("--parallelism", strconv.Itoa(int(n)), func(r *Request) { r.Parallelism = n })
		}
		if n := ptr.Deref(w.Completions, 0); n > 0 {
			l.addText("--completions", strconv.Itoa(int(n)), func(r *Request) { r.Completions = n })
		}
	}
	return l.all
}

func (l *settingList) addEnvironment(e *v1alpha1.EnvironmentPreset) {
	l.addText("--image", e.Image, func(r *Request) { r.Image = e.Image })
	l.addSwitch("--local-image", e.LocalImage, func(r *Request) { r.LocalImage = true })
	if e.WorkloadType != "" {
		l.add(fieldType, "--"+string(e.WorkloadType), "", func(r *Request) { r.Type = e.WorkloadType })
	}
	l.addText("--command", quoteWords(e.Command), func(r *Request) { r.Command = e.Command })
	l.addText("--args", quoteWords(e.Args), func(r *Request) { r.Arguments = e.Args })
	l.addText("--working-dir", e.WorkingDir, func(r *Request) { r.WorkingDirectory = e.WorkingDir })
	for _, v := range e.Env {
		l.add(environmentField(v.Name), "--environment", v.Name+"="+v.Value, func(r *Request) {
			r.Environment = append(r.Environment, corev1.EnvVar{Name: v.Name, Value: v.Value})
		})
	}
	for _, p := range e.Ports {
		port := Port{Service: p.Port, Container: p.TargetPort}
		text := strconv.Itoa(int(port.Service))
		if port.Container == 0 || port.Container == port.Service {
			port.Container = port.Service
		} else {
			text += ":" + strconv.Itoa(int(port.Container))
		}
		l.add(portField(p.Port), "--port", text, func(r *Request) { r.Ports = append(r.Ports, port) })
	}
	l.addText("--service-type", e.ServiceType, func(r *Request) { r.ServiceType = ServiceType(e.ServiceType) })
}

func (l *settingList) addCompute(c *v1alpha1.ComputePreset) {
	switch {
	case c.GPU != nil:
		text := formatGPUs(c.GPU)
		l.add(fieldGPU, "--gpu", text, func(r *Request) { r.GPUs = text })
	case c.GPUMemory != nil:
		l.add(fieldGPU, "--gpu-memory", c.GPUMemory.String(), func(r *Request) { r.GPUMemory = c.GPUMemory })
	case c.MIGProfile != "":
		l.add(fieldGPU, "--mig-profile", string(c.MIGProfile), func(r *Request) { r.MIGProfile = c.MIGProfile })
	}
	if c.CPU != nil {
		l.addText("--cpu", c.CPU.String(), func(r *Request) { r.CPU = c.CPU })
	}
	if c.Memory != nil {
		l.addText("--memory", c.Memory.String(), func(r *Request) { r.Memory = c.Memory })
	}
	l.addSwitch("--large-shm", c.LargeShm, func(r *Request) { r.LargeSharedMemory = true })
	l.addText("--node-pools", strings.Join(c.NodePools, ","), func(r *Request) { r.NodePools = c.NodePools })
}

// addVolume adds a volume. Its values are never parsed: a path may have a comma.
func (l *settingList) addVolume(v *v1alpha1.PresetVolume) {
	m := Mount{Path: v.Path, ReadOnly: v.ReadOnly}
	readwrite := ",readwrite"
	if v.ReadOnly {
		readwrite = ""
	}
	switch {
	case v.PersistentVolumeClaim != nil:
		name := v.PersistentVolumeClaim.ClaimName
		m.Flag, m.Text = "--pvc", name+":"+v.Path
		if v.ReadOnly {
			m.Text += ":ro"
		}
		m.Source.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name, ReadOnly: v.ReadOnly}
	case v.NFS != nil:
		m.Flag, m.Text = "--nfs", fmt.Sprintf("server=%s,path=%s,mount=%s%s", v.NFS.Server, v.NFS.Path, v.Path, readwrite)
		m.Source.NFS = &corev1.NFSVolumeSource{Server: v.NFS.Server, Path: v.NFS.Path, ReadOnly: v.ReadOnly}
	case v.HostPath != nil:
		m.Flag, m.Text = "--host-path", fmt.Sprintf("path=%s,mount=%s%s", v.HostPath.Path, v.Path, readwrite)
		m.Source.HostPath = &corev1.HostPathVolumeSource{Path: v.HostPath.Path}
	case v.ConfigMap != nil:
		m.Flag = "--configmap-file"
		m.setFiles(v.ConfigMap)
		m.Source.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: v.ConfigMap.Name}}
	case v.Secret != nil:
		m.Flag = "--secret-file"
		m.setFiles(v.Secret)
		m.Source.Secret = &corev1.SecretVolumeSource{SecretName: v.Secret.Name}
	case v.Git != nil:
		m.Flag = "--git-sync"
		m.Fetch = &Fetch{Source: v.Git.Source, Branch: v.Git.Branch, Revision: v.Git.Rev, Secret: v.Git.Secret}
	case v.S3 != nil:
		m.Flag = "--s3"
		m.Fetch = &Fetch{Bucket: v.S3.Bucket, Key: v.S3.Key, URL: v.S3.URL, Region: v.S3.Region, Secret: v.S3.Secret}
	default:
		return
	}
	value := m.Text
	if m.Fetch != nil {
		value, m.Source.EmptyDir = m.fetchText(), &corev1.EmptyDirVolumeSource{}
		m.Text = maskCredentials(value)
	}
	l.add(mountField(v.Path), m.Flag, value, func(r *Request) { r.Mounts = append(r.Mounts, m) })
}

// setFiles sets what ConfigMaps and Secrets have in common.
func (m *Mount) setFiles(files *v1alpha1.PresetFiles) {
	m.ReadOnly, m.File, m.Text = true, files.File, "name="+files.Name
	if files.File != "" {
		m.Text += ",file=" + files.File
	}
	m.Text += ",mount=" + m.Path
}

// formatGPUs returns GPUs as --gpu has them: 0.5 instead of 500m.
func formatGPUs(gpus *resource.Quantity) string {
	milli := gpus.MilliValue()
	if milli%1000 == 0 {
		return strconv.FormatInt(milli/1000, 10)
	}
	return strings.TrimRight(strconv.FormatFloat(float64(milli)/1000, 'f', 3, 64), "0")
}

// quoteWords returns words as a shell reads them.
func quoteWords(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = word
		if word == "" || strings.ContainsAny(word, " \t\n\"'\\$`;&|<>()*?[]{}!#~") {
			quoted[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}
