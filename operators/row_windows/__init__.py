"""Windows record by record: any assigner, trigger and function, by the rules of Flink's
WindowOperator."""
