// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/period"
)

// Group is the API group of all of Sluice's objects.
const Group = "sluice.dev"

// Version is the version of the group that this package holds.
const Version = "v1alpha1"

// GroupVersion is the group and version of every object in this package.
var GroupVersion = schema.GroupVersion{Group: Group, Version: Version}

// SchemeGroupVersion is GroupVersion, under the name that generated code uses.
var SchemeGroupVersion = GroupVersion

// SchemeBuilder collects the functions that AddToScheme calls.
var SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

// AddToScheme registers the objects of this package in a scheme.
var AddToScheme = SchemeBuilder.AddToScheme

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&NodePool{}, &NodePoolList{},
		&Department{}, &DepartmentList{},
		&Project{}, &ProjectList{},
		&Policy{}, &PolicyList{},
		&GPUNode{}, &GPUNodeList{},
		&WorkloadClock{}, &WorkloadClockList{},
		&Extension{}, &ExtensionList{},
		&Notice{}, &NoticeList{},
		&UsageRecord{}, &UsageRecordList{},
		&Preset{}, &PresetList{},
		&AdmissionParameters{}, &AdmissionParametersList{},
		&ProjectParameters{}, &ProjectParametersList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// equality.Semantic panics on a struct with unexported fields unless it has a comparison
// function. Controllers compare whole specs and statuses with it.
func init() {
	if err := equality.Semantic.AddFuncs(
		period.Duration.Equal,
		period.Period.Equal,
		period.Date.Equal,
	); err != nil {
		panic(err) // cannot happen: the signatures are those that AddFuncs accepts
	}
}
