// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifests contains the objects of a Sluice installation, as files for kubectl and
// kustomize and as an embedded file system: CRDs, RBAC and webhook configurations (base), the
// agent of GPU nodes (agent, agent-without-operator), and samples. [Build] returns the objects of a kustomization. The
// package never connects to a cluster.
package manifests

import (
	"embed"
	"fmt"
	"io/fs"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// Files are the manifests in this folder.
//
//go:embed crds base agent agent-without-operator samples
var Files embed.FS

// The kustomizations in [Files].
const (
	// Base is required in every installation.
	Base = "base"
	// Agent is Base with the agent on GPU nodes.
	Agent = "agent"
	// AgentWithoutOperator is Agent for clusters without NVIDIA's GPU operator.
	AgentWithoutOperator = "agent-without-operator"
	// University is a sample: three departments with projects, and two pools.
	University = "samples/university"
	// Fairness is a sample for Kueue: four teams that share sixteen GPUs.
	Fairness = "samples/fairness"
)

// Build returns the objects of the kustomization in folder, as `kubectl kustomize` builds them, in
// the order in which they can be applied.
func Build(folder string) ([]*unstructured.Unstructured, error) {
	return BuildFrom(Files, folder)
}

// BuildFrom is Build with other files.
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
		return nil, fmt.Errorf("copy manifests: %w", err)
	}
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionLegacy // namespaces and CRDs first
	built, err := krusty.MakeKustomizer(options).Run(disk, "/"+folder)
	if err != nil {
		return nil, fmt.Errorf("build manifests of %s: %w", folder, err)
	}
	var objects []*unstructured.Unstructured
	for _, resource := range built.Resources() {
		object := &unstructured.Unstructured{}
		raw, err := resource.MarshalJSON()
		if err == nil {
			// Unstructured objects can only copy the number types of JSON.
			err = object.UnmarshalJSON(raw)
		}
		if err != nil {
			return nil, fmt.Errorf("build manifests of %s: %w", folder, err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}
