// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workbench

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/util"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/data"
	"sluice.dev/policies/engine"
)

// dataObjects are what policies read as data.config and data.objects.
type dataObjects struct {
	configMaps []corev1.ConfigMap
	// objects are all objects of files that Sluice does not know itself; the AdmissionParameters list which kinds count.
	objects []unstructured.Unstructured
}

// AddData adds ConfigMaps and objects of a cluster. The AdmissionParameters of the folder list the kinds that policies read.
func (f *Folder) AddData(configMaps []corev1.ConfigMap, objects []unstructured.Unstructured) {
	f.data.configMaps = append(f.data.configMaps, configMaps...)
	f.data.objects = append(f.data.objects, objects...)
}

// DataKinds returns the kinds of objects that policies read.
func (f *Folder) DataKinds() []v1alpha1.PolicyDataKind {
	return data.ValidKinds(f.parameters.Spec.PolicyData)
}

// AddedTemplates returns the kinds that the AdmissionParameters add to those that create pods.
func (f *Folder) AddedTemplates() []v1alpha1.PodTemplates { return f.parameters.Spec.PodTemplates }

// addDataObject adds an object of a file that is not Sluice's own.
func (f *Folder) addDataObject(document []byte) error {
	var object unstructured.Unstructured
	if err := yaml.Unmarshal(document, &object.Object); err != nil {
		return err
	}
	if object.GetAPIVersion() != "v1" || object.GetKind() != "ConfigMap" || object.GetLabels()[v1alpha1.PolicyDataLabel] != "true" {
		f.data.objects = append(f.data.objects, object)
		return nil
	}
	config, err := decode[corev1.ConfigMap](document)
	if err != nil {
		return err
	}
	// A file needs no namespace. Its name stands for the UID.
	config.Namespace = cmp.Or(config.Namespace, v1alpha1.SystemNamespace)
	config.UID = types.UID(config.Name)
	if config.Namespace != v1alpha1.SystemNamespace {
		return fmt.Errorf("ConfigMap %s: metadata.namespace: policies read ConfigMaps of %s only", config.Name, v1alpha1.SystemNamespace)
	}
	if slices.ContainsFunc(f.data.configMaps, func(c corev1.ConfigMap) bool { return c.Name == config.Name }) {
		return fmt.Errorf("ConfigMap %s: another one of the folder has this name", config.Name)
	}
	f.data.configMaps = append(f.data.configMaps, config)
	return nil
}

// Data returns the data that policies read. The error lists each ConfigMap that has a fault; without the faults of a cluster,
// which are part of the data.
func (f *Folder) Data() (*engine.Data, error) {
	var configs data.Configs
	all, faults := configs.Update(f.data.configMaps)
	var errs []error
	for _, fault := range faults {
		if !f.live {
			errs = append(errs, fmt.Errorf("ConfigMap %s: %s", fault.Name, fault.Message))
		}
	}
	return engine.NewData(all, data.Collect(f.parameters.Spec.PolicyData, f.data.objects)), errors.Join(errs...)
}

// UseData makes the policies read this data.
func (c *Cluster) UseData(data *engine.Data) { c.set = c.set.WithData(data) }

// dataStore returns a store with the data for unit tests, of all namespaces.
func (f *Folder) dataStore() (storage.Store, error) {
	all, err := f.Data()
	if err != nil {
		return nil, err
	}
	// The store knows no int64.
	encoded, err := json.Marshal(all.Value())
	if err != nil {
		return nil, err
	}
	var value map[string]any
	if err := util.UnmarshalJSON(encoded, &value); err != nil {
		return nil, err
	}
	return inmem.NewFromObject(value), nil
}
