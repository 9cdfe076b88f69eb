// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package submission

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Mount is a volume at a path of the container.
type Mount struct {
	// Flag and Text are what the user gave, for messages.
	Flag, Text string
	Path       string
	// File mounts only this file of the volume, at Path.
	File     string
	ReadOnly bool
	Source   corev1.VolumeSource
	// NewClaim is a volume claim that is created with the workload.
	NewClaim *NewClaim
	// Fetch is where the files of the volume come from.
	Fetch *Fetch
}

// NewClaim is a volume claim of a workload.
type NewClaim struct {
	Name, StorageClass string
	Size               resource.Quantity
}

func (m *Mount) refuse(want string) error { return fmt.Errorf("%s %q: %s", m.Flag, m.Text, want) }

// ParseVolume reads a folder of the node, such as /data:/mnt[:ro] of -v.
func ParseVolume(text string) (Mount, error) {
	m := Mount{Flag: "--volume", Text: text}
	host, to, err := m.splitPath("/HOST:/CONTAINER")
	if err != nil {
		return m, err
	}
	m.Path = to
	m.Source.HostPath = &corev1.HostPathVolumeSource{Path: host}
	return m, nil
}

// ParseClaim reads an existing volume claim, such as data:/mnt[:ro] of --pvc.
func ParseClaim(text string) (Mount, error) {
	m := Mount{Flag: "--pvc", Text: text}
	claim, to, err := m.splitPath("NAME:/PATH")
	if err != nil {
		return m, err
	}
	m.Path = to
	m.Source.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim, ReadOnly: m.ReadOnly}
	return m, nil
}

// splitPath splits SOURCE:PATH[:ro].
func (m *Mount) splitPath(form string) (source, to string, err error) {
	parts := strings.Split(m.Text, ":")
	if last := len(parts) - 1; last == 2 && (parts[last] == "ro" || parts[last] == "rw") {
		m.ReadOnly = parts[last] == "ro"
		parts = parts[:last]
	}
	if len(parts) != 2 || parts[0] == "" || parts[1] == "" {
		return "", "", m.refuse("want " + form + ", with :ro for read-only")
	}
	return parts[0], parts[1], nil
}

// The keys of volumes that have several. A key with ! is required.
var mountKeys = map[string][]string{
	"--new-pvc":        {"name!", "path!", "size!", "storageclass", "ro"},
	"--host-path":      {"path!", "mount!", "readwrite"},
	"--nfs":            {"server!", "path!", "mount!", "readwrite"},
	"--configmap-file": {"name!", "file", "mount!"},
	"--secret-file":    {"name!", "file", "mount!"},
	"--git-sync":       {"source!", "branch", "rev", "secret", "target!"},
	"--s3":             {"bucket!", "key", "url!", "region", "secret", "target!"},
}

// ParseMount reads a volume such as server=nas,path=/exports,mount=/data of the flags --new-pvc, --host-path, --nfs,
// --configmap-file, --secret-file, --git-sync and --s3.
func ParseMount(flag, text string) (Mount, error) {
	m := Mount{Flag: flag, Text: text}
	if imageKeys[flag] != "" {
		m.Text = maskCredentials(text)
	}
	values, err := m.parseKeys(text)
	if err != nil {
		return m, err
	}
	m.Path, m.File = values["mount"], values["file"]
	switch flag {
	case "--new-pvc":
		size, sizeErr := parseQuantity(values["size"], "20Gi", leastBytes)
		if sizeErr != nil {
			return m, m.refuse("size: " + sizeErr.Error())
		}
		m.Path, m.ReadOnly = values["path"], values["ro"] != ""
		m.NewClaim = &NewClaim{Name: values["name"], StorageClass: values["storageclass"], Size: size}
		m.Source.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: values["name"], ReadOnly: m.ReadOnly}
	case "--host-path":
		m.ReadOnly = values["readwrite"] == ""
		m.Source.HostPath = &corev1.HostPathVolumeSource{Path: values["path"]}
	case "--nfs":
		m.ReadOnly = values["readwrite"] == ""
		m.Source.NFS = &corev1.NFSVolumeSource{Server: values["server"], Path: values["path"], ReadOnly: m.ReadOnly}
	case "--configmap-file":
		m.ReadOnly = true
		m.Source.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: values["name"]}}
	case "--secret-file":
		m.ReadOnly = true
		m.Source.Secret = &corev1.SecretVolumeSource{SecretName: values["name"]}
	case "--git-sync", "--s3":
		m.Path, m.Source.EmptyDir, m.Fetch = values["target"], &corev1.EmptyDirVolumeSource{}, newFetch(values)
	}
	return m, m.validateFetch()
}

// parseKeys reads KEY=VALUE,...; a key without a value is a switch.
func (m *Mount) parseKeys(text string) (map[string]string, error) {
	known := mountKeys[m.Flag]
	values := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		key, value, hasValue := strings.Cut(part, "=")
		isSwitch := key == "ro" || key == "readwrite"
		isKnown := slices.Contains(known, key) || slices.Contains(known, key+"!")
		switch {
		case m.Flag == "--git-sync" && (key == "username" || key == "password"):
			return nil, m.refuse(fmt.Sprintf("key %q: credentials belong in a Secret: secret=NAME", key))
		case !isKnown && imageKeys[m.Flag] != "" && (!hasValue || !mayShowKey(text, key)):
			return nil, m.refuse("a key is unknown; want " + describeKeys(known))
		case !isKnown:
			return nil, m.refuse(fmt.Sprintf("key %q is unknown; want %s", key, describeKeys(known)))
		case isSwitch == hasValue || hasValue && value == "":
			return nil, m.refuse(fmt.Sprintf("%q: want %s", part, describeKeys(known)))
		case isSwitch:
			value = "true"
		}
		if values[key] != "" {
			return nil, m.refuse(fmt.Sprintf("key %q is given twice", key))
		}
		values[key] = value
	}
	for _, key := range known {
		if name, required := strings.CutSuffix(key, "!"); required && values[name] == "" {
			return nil, m.refuse(fmt.Sprintf("key %q is missing; want %s", name, describeKeys(known)))
		}
	}
	return values, nil
}

func describeKeys(known []string) string {
	forms := make([]string, len(known))
	for i, key := range known {
		name, required := strings.CutSuffix(key, "!")
		switch {
		case required:
			forms[i] = name + "=..."
		case name == "ro" || name == "readwrite":
			forms[i] = "[" + name + "]"
		default:
			forms[i] = "[" + name + "=...]"
		}
	}
	return strings.Join(forms, ",")
}

// validateMounts returns the faults of paths, names and origins, and of paths that are given twice.
func (r *Request) validateMounts() (problems []error) {
	seen := map[string]bool{}
	for i := range r.Mounts {
		m := &r.Mounts[i]
		fault := m.validateFetch()
		switch name := m.objectName(); {
		case fault != nil:
			problems = append(problems, fault)
		case !path.IsAbs(m.Path) || strings.Contains(m.Path, ":"):
			problems = append(problems, m.refuse(fmt.Sprintf("path %q: want an absolute path of the container", m.Path)))
		case path.Clean(m.Path) == "/" || slices.Contains(strings.Split(m.Path, "/"), ".."):
			problems = append(problems, m.refuse(fmt.Sprintf("path %q: want a folder below /, without ..", m.Path)))
		case seen[path.Clean(m.Path)]:
			problems = append(problems, m.refuse("path "+m.Path+": it is mounted twice"))
		case m.Source.HostPath != nil && !path.IsAbs(m.Source.HostPath.Path):
			problems = append(problems, m.refuse(fmt.Sprintf("path %q: want an absolute path of the node", m.Source.HostPath.Path)))
		case name != "" && len(validation.IsDNS1123Subdomain(name)) > 0:
			problems = append(problems, m.refuse(fmt.Sprintf("name %q: want lower case letters, digits, - and .", name)))
		case strings.ContainsAny(m.File, "/:") || m.File == "..":
			problems = append(problems, m.refuse(fmt.Sprintf("file %q: want a key of the object", m.File)))
		}
		seen[path.Clean(m.Path)] = true
	}
	return problems
}

// objectName returns the name of the object that the volume refers to, or "".
func (m *Mount) objectName() string {
	switch s := &m.Source; {
	case s.PersistentVolumeClaim != nil:
		return s.PersistentVolumeClaim.ClaimName
	case s.ConfigMap != nil:
		return s.ConfigMap.Name
	case s.Secret != nil:
		return s.Secret.SecretName
	}
	return ""
}
