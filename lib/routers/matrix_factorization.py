"""Matrix factorization in the style of RouteLLM: a learned vector for each model, and one for what an item asks.

RouteLLM (Ong et al. 2024, section 4.2) scores a model M on a query q by a bilinear form,

    delta(M, q) = w2^T (v_M * (W1^T v_q + b)),

from an embedding v_q, and fits it to pairs of replies that people preferred. Here the outcomes of all models are
known, so that it is fitted to them: P(M is correct on q) = sigmoid(delta(M, q)). w2 is part of v_M, and b gives a bias
for each model, which is written as such. RouteLLM's weights are not used; everything is trained on the table's items.
"""

import numpy as np
import torch
from torch import nn

from lib.experiment import seeds

VERSION = 1  # of the predicted probabilities
RANK = (
    16  # numbers of a model's vector; RouteLLM has 128 for some sixty models and a larger embedding
)
_STEPS = 300
_LEARNING_RATE = 0.05
# Of the sum of squared weights, beside a sum over items; as strong as that of the logistic router (C = 0.1).
_PENALTY = 10.0
_INITIAL_SCALE = 0.1


class MatrixFactorization(nn.Module):
    """delta(M, q) of all models.

    Attributes:
        projection: (d, rank), from an item's features to what is asked (W1).
        model_vectors: (models, rank), what each model can do (v_M).
        model_biases: (models,), how often each model is correct.
    """

    def __init__(self, num_features: int, num_models: int, generator: torch.Generator) -> None:
        super().__init__()
        rank = min(RANK, num_features, num_models)
        self.projection = nn.Parameter(
            _INITIAL_SCALE * torch.randn(num_features, rank, generator=generator)
        )
        self.model_vectors = nn.Parameter(
            _INITIAL_SCALE * torch.randn(num_models, rank, generator=generator)
        )
        self.model_biases = nn.Parameter(torch.zeros(num_models))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Scores (items, models) from features (items, d); their sigmoid is a probability."""
        item_vectors = features @ self.projection  # (items, rank)
        return item_vectors @ self.model_vectors.T + self.model_biases


def predict_matrix_factorization(
    features: np.ndarray, correct: np.ndarray, train: np.ndarray, *stream: str | int
) -> np.ndarray:
    """Predicts how likely each model is to be correct.

    Args:
        features: (items, d), standardized.
        correct: (items, models) in [0, 1].
        train: Indices of the items to learn from.
        stream: Names of the random stream of the initial weights.

    Returns:
        (items, models), probabilities.
    """
    generator = seeds.torch_generator("outcomes", "matrix factorization", *map(str, stream))
    all_features = torch.as_tensor(features, dtype=torch.float32)
    train_features = all_features[train]
    targets = torch.as_tensor(correct[train], dtype=torch.float32)  # (train, models)
    model = MatrixFactorization(all_features.shape[1], targets.shape[1], generator)
    # A bias starts where the model's accuracy is, so that the vectors learn what differs between items.
    accuracy = targets.mean(0).clamp(0.01, 0.99)
    model.model_biases.data = torch.logit(accuracy)

    optimizer = torch.optim.Adam(model.parameters(), lr=_LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, _STEPS)
    for _ in range(_STEPS):
        scores = model(train_features)
        loss = nn.functional.binary_cross_entropy_with_logits(scores, targets, reduction="sum")
        squared_weights = model.projection.square().sum() + model.model_vectors.square().sum()
        objective = (loss + _PENALTY / 2 * squared_weights) / len(train)
        optimizer.zero_grad()
        objective.backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        return torch.sigmoid(model(all_features)).numpy().astype(float)
