module chart-crds

go 1.26.0

require (
	github.com/cert-manager/cert-manager v1.21.1 // indirect
	github.com/kubeflow/spark-operator/v2 v2.3.0 // indirect
	github.com/prometheus-operator/prometheus-operator v0.93.1 // indirect
	sigs.k8s.io/gateway-api v1.6.0 // indirect
)
