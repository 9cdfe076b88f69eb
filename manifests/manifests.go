// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifests contains the objects of a Sluice installation, as files for kubectl and
// kustomize and as an embedded file system: CRDs, RBAC, admission and the Deployments (base), the
// agent of GPU nodes (agent), the installations made of them (overlays), and samples. [Build] returns
// the objects of a kustomization. The package never connects to a cluster.
package manifests

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// Files are the manifests in this folder.
//
//go:embed crds base agent certmanager openshift overlays monitoring dashboards uninstall samples
var Files embed.FS

// The kustomizations in [Files].
const (
	// Base is required in every installation: all objects but those of the agent.
	Base = "base"
	// Minimal is Base with one replica of each component.
	Minimal = "overlays/minimal"
	// Production is Base with the agent on GPU nodes.
	Production = "overlays/production"
	// RKE2 is Production on RKE2.
	RKE2 = "overlays/rke2"
	// WithoutOperator is Production for clusters without NVIDIA's GPU operator.
	WithoutOperator = "overlays/without-operator"
	// OpenShift is a component: SecurityContextConstraints.
	OpenShift = "openshift"
	// CertManager is a component: cert-manager issues the webhook's certificate.
	CertManager = "certmanager"
	// Monitoring has the alerts and the scrape targets, for the Prometheus operator. It is a component.
	Monitoring = "monitoring"
	// Dashboards are ConfigMaps for Grafana.
	Dashboards = "dashboards"
	// Uninstall is a component: the Job with which Helm removes Sluice before it deletes the objects.
	Uninstall = "uninstall"
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

// BuildWith is Build of a folder with components, in this order.
func BuildWith(folder string, components ...string) ([]*unstructured.Unstructured, error) {
	kustomization := "resources: [../" + folder + "]\ncomponents: [../" + strings.Join(components, ", ../") + "]\n"
	const name = "with-components"
	return buildIn(Files, map[string]string{name + "/kustomization.yaml": kustomization}, name)
}

// BuildOverlay returns the objects of a kustomization that stands beside the folders of [Files],
// which it names as resources: ../overlays/production.
func BuildOverlay(kustomization []byte) ([]*unstructured.Unstructured, error) {
	const name = "overlay"
	return buildIn(Files, map[string]string{name + "/kustomization.yaml": string(kustomization)}, name)
}

// BuildFrom is Build with other files.
func BuildFrom(files fs.FS, folder string) ([]*unstructured.Unstructured, error) {
	return buildIn(files, nil, folder)
}

// buildIn is Build with further files, by path.
func buildIn(files fs.FS, further map[string]string, folder string) ([]*unstructured.Unstructured, error) {
	disk := filesys.MakeFsInMemory()
	for path, content := range further {
		if err := disk.WriteFile("/"+path, []byte(content)); err != nil {
			return nil, fmt.Errorf("copy manifests: %w", err)
		}
	}
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
