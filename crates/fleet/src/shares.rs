//! Divides the spare servers among the nodes that want servers.

/// The demand of one node for servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Servers above the floor that the node could use.
    pub wanted: u32,
    /// The weight of the node's share while the demands of all nodes exceed the spare servers. 0 counts as 1.
    pub weight: u32,
}

/// Divides `spare` servers. No node gets more than it wants. Nodes that want more than their share get servers in
/// proportion to their weights, to within one server. The result has the order of `demands`. All nodes that know the
/// same demands compute the same shares.
#[must_use]
pub fn divide(spare: u32, demands: &[Demand]) -> Vec<u32> {
    let mut shares = vec![0_u32; demands.len()];
    let mut left = u64::from(spare);
    let weight = |at: usize| u64::from(demands[at].weight.max(1));
    let mut open: Vec<usize> = (0..demands.len()).collect();
    // Nodes that want no more than their share get all that they want. The shares of the other nodes become larger.
    loop {
        let weights: u64 = open.iter().map(|&at| weight(at)).sum();
        let fits = |at: usize| {
            u128::from(demands[at].wanted) * u128::from(weights)
                <= u128::from(left) * u128::from(weight(at))
        };
        let (content, rest): (Vec<usize>, Vec<usize>) = open.iter().partition(|&&at| fits(at));
        if content.is_empty() {
            break;
        }
        for at in content {
            shares[at] = demands[at].wanted;
            left -= u64::from(demands[at].wanted);
        }
        open = rest;
    }
    let weights: u64 = open.iter().map(|&at| weight(at)).sum();
    let whole = left;
    for &at in &open {
        let part = whole * weight(at) / weights;
        shares[at] = u32::try_from(part).unwrap_or(u32::MAX);
        left -= part;
    }
    // Rounding down leaves fewer servers than there are nodes. The first nodes get one more each.
    for &at in open.iter().take(usize::try_from(left).unwrap_or(0)) {
        shares[at] += 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares() {
        let check = |spare, demands: &[(u32, u32)], expect: &[u32]| {
            let demands: Vec<_> = demands
                .iter()
                .map(|&(wanted, weight)| Demand { wanted, weight })
                .collect();
            assert_eq!(divide(spare, &demands), expect, "{demands:?}");
        };
        check(30, &[], &[]);
        check(30, &[(5, 1), (0, 1)], &[5, 0]);
        check(30, &[(100, 1), (100, 1), (100, 1)], &[10, 10, 10]);
        check(31, &[(100, 1), (100, 1), (100, 1)], &[11, 10, 10]);
        check(30, &[(100, 1), (2, 1), (100, 1)], &[14, 2, 14]);
        check(40, &[(100, 3), (100, 1)], &[30, 10]);
        check(0, &[(9, 1), (9, 1)], &[0, 0]);
        check(
            u32::MAX,
            &[(u32::MAX, 7), (u32::MAX, 0)],
            &[3_758_096_384, 536_870_911],
        );
    }
}
