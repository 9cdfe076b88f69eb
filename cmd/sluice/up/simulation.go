// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sluice.dev/test/cluster/fakekubelet"
	"sluice.dev/test/cluster/kwok"
)

// simulationNamespace holds the accounts of what stands in for kubelets.
const simulationNamespace = "sluice-sim"

func simulationAccounts() ([]*unstructured.Unstructured, error) {
	namespace := []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: " + simulationNamespace + "}\n")
	return decode(namespace, kwok.RBAC, fakekubelet.RBAC)
}
