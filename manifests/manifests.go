// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifests holds what is installed into a cluster, as files that
// kubectl and kustomize read and as a file system for those who install it from
// Go: the CRDs, the ServiceAccounts with their rights and the webhook
// configurations (base), the agent of GPU nodes (agent), and a sample university.
//
// Enters: nothing. Leaves: [Files], and the objects that a kustomization in it
// builds. It never talks to a cluster.
package manifests

import (
	"embed"
	"fmt"
	"io/fs"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// Files are the manifests as they lie in this folder.
//
//go:embed crds base agent samples
var Files embed.FS

// The kustomizations in [Files].
const (
	// Base is what every installation needs.
	Base = "base"
	// Agent is Base with the agent on GPU nodes.
	Agent = "agent"
	// University is a sample: three departments with projects, and two pools.
	University = "samples/university"
	// Fairness is a sample for Kueue: four teams that share sixteen GPUs.
	Fairness = "samples/fairness"
)

// Build is what `kubectl kustomize` would make of the kustomization in folder,
// in the order in which it can be applied.
func Build(folder string) ([]*unstructured.Unstructured, error) {
	return BuildFrom(Files, folder)
}

// BuildFrom is Build with other files than Sluice's own.
func BuildFrom(files fs.FS, folder string) ([]*unstructured.Unstructured, error) {
	disk := filesys.MakeFsInMemory()
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		raw, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		return disk.WriteFile("/"+path, raw)
	})
	if err != nil {
		return nil, fmt.Errorf("manifests: %w", err)
	}
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionLegacy // namespaces and CRDs first
	built, err := krusty.MakeKustomizer(options).Run(disk, "/"+folder)
	if err != nil {
		return nil, fmt.Errorf("manifests: building %s: %w", folder, err)
	}
	var objects []*unstructured.Unstructured
	for _, resource := range built.Resources() {
		object := &unstructured.Unstructured{}
		raw, err := resource.MarshalJSON()
		if err == nil {
			// Through JSON, whose numbers are the ones that unstructured can copy.
			err = object.UnmarshalJSON(raw)
		}
		if err != nil {
			return nil, fmt.Errorf("manifests: building %s: %w", folder, err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}
